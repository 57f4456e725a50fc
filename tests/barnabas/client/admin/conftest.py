import pytest

pytest.register_assert_rewrite("tests.barnabas.client.admin.stories", "tests.barnabas.client.admin.stage")
