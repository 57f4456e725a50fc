// Reads a share group with franz-go, and prints what it got and what it answered, one line of JSON for each record.
//
// Values choose the answer: "bad…" is rejected; "again…" is released when it comes for the first time; the rest is
// accepted. The program ends when it has answered for good for the given number of records.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type line struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     string `json:"value"`
	Delivery  int32  `json:"delivery"`
	Answer    string `json:"answer"`
}

func answerTo(record *kgo.Record) (kgo.AckStatus, string) {
	value := string(record.Value)
	switch {
	case strings.HasPrefix(value, "bad"):
		return kgo.AckReject, "reject"
	case strings.HasPrefix(value, "again") && record.DeliveryCount() == 1:
		return kgo.AckRelease, "release"
	default:
		return kgo.AckAccept, "accept"
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	bootstrap, topic, group := os.Args[1], os.Args[2], os.Args[3]
	wanted, err := strconv.Atoi(os.Args[4])
	if err != nil {
		fail(err)
	}
	var mutex sync.Mutex
	var refused error
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumeTopics(topic),
		kgo.ShareGroup(group),
		kgo.ShareMaxRecords(50),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			mutex.Lock()
			defer mutex.Unlock()
			if refused == nil {
				refused = results.Error()
			}
		}),
	)
	if err != nil {
		fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	out := json.NewEncoder(os.Stdout)
	for done := 0; done < wanted; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			fail(fmt.Errorf("answered %d of %d records: %w", done, wanted, ctx.Err()))
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			fail(fmt.Errorf("%s-%d: %w", topic, partition, err))
		})
		fetches.EachRecord(func(record *kgo.Record) {
			status, answer := answerTo(record)
			record.Ack(status)
			if status != kgo.AckRelease {
				done++
			}
			out.Encode(line{record.Partition, record.Offset, string(record.Value), record.DeliveryCount(), answer})
		})
		if err := client.FlushAcks(ctx); err != nil {
			fail(err)
		}
	}
	client.Close()
	mutex.Lock()
	defer mutex.Unlock()
	if refused != nil {
		fail(refused)
	}
}
