"""Why a row cannot be read: every reason of the readers with its meaning, for the table of the filter's stages.

The readers own their reasons; a test compares this list with their code.
"""

from __future__ import annotations

READ_REASONS: tuple[tuple[str, str], ...] = (
    ("trajectory_missing", "the row is a trace, but no trajectory was read for it; retried"),
    ("duplicate_line", "a further line for a problem, where the stage `duplicate` is switched off"),
    # where the bytes come from
    ("judged_day_out_of_reach", "judged more than a day away from the folder it lies in"),
    ("outside_root", "the artifact's address leads out of the data root"),
    ("not_found", "the artifact is gone"),
    ("unreadable_file", "the artifact is no regular file"),
    ("no_artifact", "the row names no artifact"),
    ("not_sampled", "found, and left out by the sample of a day above the budget of requests"),
    ("artifact_changed", "the artifact is not the one that was inventoried"),
    ("record_missing", "the artifact does not hold this record"),
    # the container
    ("too_large", "the artifact, stored or inflated, is larger than allowed"),
    ("truncated_gzip", "the gzip file has no trailer: an interrupted upload"),
    ("corrupt_gzip", "the gzip file is damaged"),
    ("nested_archive", "an archive inside the artifact"),
    ("unknown_container", "neither JSON nor JSON lines"),
    ("record_too_large", "one line is larger than allowed"),
    # the JSON text
    ("cut_line", "the line ends inside a value: its writer was killed"),
    ("truncated_json", "the text ends inside a value"),
    ("not_json", "no JSON"),
    ("nul_bytes", "NUL bytes inside the text"),
    ("bad_encoding", "no UTF-8"),
    ("duplicate_key", "a key occurs twice in one object with different values"),
    ("number_too_long", "a number of more digits than can be read"),
    ("too_deep", "nested more deeply than allowed"),
    # the record
    ("no_dialogue", "an object without a dialogue, or a null one"),
    ("non_list_result", "the agent returned no list"),
    ("query_missing", "no step states a query"),
    ("bad_tools", "the tool schemas are no list of objects"),
    ("control_token_in_tools", "a tool schema holds a token of a chat template"),
    ("reader_error", "a fault of the reader itself, with its name"),
    # a step of the arena's dialogue
    ("step_not_object", "a step is no object"),
    ("completion_missing", "a step without completion"),
    ("completion_null", "the completion of a step is null"),
    ("completion_not_object", "the completion of a step is no object"),
    ("message_missing", "a completion without message"),
    ("message_null", "the message of a step is null"),
    ("message_not_object", "a message is no object"),
    ("message_empty", "a message that says and does nothing"),
    ("think_not_text", "the thinking is no text"),
    ("response_not_text", "the response is no text"),
    ("user_not_text", "the user's text is no text"),
    # a chat message
    ("messages_not_list", "the messages are no list"),
    ("unknown_role", "a role that no chat has"),
    ("content_not_text", "the content is neither text nor text parts"),
    ("non_text_part", "a part of the content is no text"),
    ("truncated", "the last reply was cut at the token limit"),
    # calls and results
    ("tool_call_not_list", "the calls are no list, object or JSON text"),
    ("tool_call_item_not_object", "a call is no object"),
    ("tool_call_text", "the calls are a text that is no JSON"),
    ("call_without_name", "a call names no tool"),
    ("malformed_tool_call", "a call or its arguments cannot be read"),
    ("truncated_tool_call", "a call was cut at the token limit"),
    ("control_token_in_call", "a token of a chat template inside a call"),
    ("missing_tool_result", "a call without a result, though more follows"),
    ("orphan_tool_result", "results that no call of the step asked for"),
    ("orphan_tool_message", "a tool message that answers no call of the turn before it"),
)
