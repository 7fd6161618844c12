from minivllm_scheduler import (
    DuplicateRequest,
    InvalidConfig,
    InvalidRequest,
    QueueFull,
    RequestTooLarge,
    SchedulerError,
    UnexpectedResult,
    errors,
)


def test_one_base_catches_all():
    raised = {thing for thing in vars(errors).values() if isinstance(thing, type)} - {SchedulerError}
    assert all(issubclass(error, SchedulerError) for error in raised)
    assert raised == {
        DuplicateRequest,
        InvalidConfig,
        InvalidRequest,
        QueueFull,
        RequestTooLarge,
        UnexpectedResult,
        errors.InvalidRecording,
        errors.ReplayDiverged,
    }


def test_messages_name_value_and_limit():
    assert str(RequestTooLarge("a", 60, 5, 64, "context")) == (
        "request 'a' needs 65 tokens (60 of prompt, max_tokens 5), the context holds 64"
    )
    assert str(RequestTooLarge("a", 60, 6, 64, "pool")) == (
        "request 'a' needs 65 tokens (60 of prompt, max_tokens 6), the pool holds 64"
    )
    assert str(QueueFull(7, 2, 8)) == "7 requests wait and 2 more exceed the limit of 8"
    assert str(DuplicateRequest("a")) == "request id 'a' is already in use"
