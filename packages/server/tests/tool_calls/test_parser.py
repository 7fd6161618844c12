from minivllm_server.tool_calls.parser import CallPiece, Parsed, join


def test_results_are_joined_in_order():
    f, g = CallPiece("f", ""), CallPiece("g", "")
    assert join([]) == Parsed()
    assert join([Parsed("a", (f,)), Parsed(), Parsed("b", (g,))]) == Parsed("ab", (f, g))
