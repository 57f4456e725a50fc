package barnabas.cluster;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;

/** Makes and removes ACLs over the wire, as the most powerful user of a cluster. */
final class Acls {
    private Acls() { }

    static List<CompletionStage<AclCreateResult>> create(Cluster cluster, List<?> bindings) throws InterruptedException {
        List<CompletionStage<AclCreateResult>> results = new ArrayList<>();
        try (Admin admin = Configs.admin(cluster)) {
            for (Object binding : bindings) {
                KafkaFuture<Void> made = admin.createAcls(List.of((AclBinding) binding)).all();
                results.add(CompletableFuture.completedFuture(refusal(made) == null ? AclCreateResult.SUCCESS : new AclCreateResult(refusal(made))));
            }
        }
        return results;
    }

    static List<CompletionStage<AclDeleteResult>> delete(Cluster cluster, List<?> filters) throws InterruptedException, ExecutionException {
        List<CompletionStage<AclDeleteResult>> results = new ArrayList<>();
        try (Admin admin = Configs.admin(cluster)) {
            for (Object filter : filters) {
                var removed = admin.deleteAcls(List.of((AclBindingFilter) filter)).all();
                results.add(CompletableFuture.completedFuture(refusal(removed) != null ? new AclDeleteResult(refusal(removed))
                    : new AclDeleteResult(removed.get().stream().map(AclDeleteResult.AclBindingDeleteResult::new).toList())));
            }
        }
        return results;
    }

    /** Why it was refused; null if it was not. */
    private static ApiException refusal(KafkaFuture<?> done) throws InterruptedException {
        try {
            done.get();
            return null;
        } catch (ExecutionException e) {
            return (ApiException) e.getCause();
        }
    }
}
