//! `docs/reference/events.md`, from the names that the program gives its events.

use shikiri_model::run::{DialogueEventName, ExecutionEventName, RunEventName};
use shikiri_testkit::{check_reference_page, table_cell};

use super::super::hooks::events::EVENTS;
use super::rows;

const HEAD: &str = "\
# Events

<!-- Made by `cargo xtask reference` from the names in crates/shikiri-model/src/run/event_names.rs and the events
of crates/shikiri/src/cli/hooks/events.rs. -->

A stream of server-sent events has frames with `id` (the event's number in its stream, from 1), `event` (its name)
and `data`, one line of JSON. The data of each event has `seq` (the same number) and `at`, and `run_id` or
`execution_id`; the tables name what it has besides. A question mark means that the field may be missing.

- `Last-Event-ID` or `?after=` continues after a number. The bytes are the same on every server of the store.
- Events are kept for 30 days (`retention_days`). For a position that is older, the stream begins with
  `event: resync`, whose data has `kept_after`. A position that never existed is refused with 400.
- A comment is sent every 10 seconds. `retry: 1000` tells clients to come back after a second.
- After the last event the server ends the stream. There is exactly one: `result` or `error`, and
  `conversation_ended` for a dialogue.
";
const MCP: &str = "
## Over MCP

A call of an agent follows its run's events, and sends them as messages of the protocol:

| event of the run | message |
|---|---|
| `progress` | `notifications/progress`, if the call has a progress token; repeated at least every 15 seconds |
| `log` | `notifications/message` at the event's level |
| `partial` | `notifications/message` of the logger `partial_result` |
| `question` for a person, a model, the folders | `elicitation/create`, `sampling/createMessage`, `roots/list`; in 2026-07-28 the result `input_required` |
| `result`, `error` | the call's result; an agent's failure has `isError` and a [code](errors.md) |

The resource `shikiri://runs/{id}/events` has all events of a run.
";

#[test]
fn the_reference_has_every_event() {
    let mut page = HEAD.to_owned();
    let mut section = |title: &str, text: &str, rows: String| {
        page.push_str(&format!(
            "\n## {title}\n\n{text}\n\n| event | when | data |\n|---|---|---|\n{rows}"
        ));
    };
    section(
        "Executions",
        "The stream of `POST …/conversations/{c}/executions` and of `GET …/executions/{e}/events`.",
        rows(ExecutionEventName::ALL.map(|name| (name.as_str(), name.comment()))),
    );
    section(
        "Runs",
        "The stream of `GET …/runs/{r}/events`, for runs of agents. `index` is the place of a step, question, \
         note, timer or child in the agent's journal.",
        rows(RunEventName::ALL.map(|name| (name.as_str(), name.comment()))),
    );
    section(
        "Dialogues",
        "The stream of `GET …/projects/{p}/dialogues/{d}/events`.",
        rows(DialogueEventName::ALL.map(|name| (name.as_str(), name.comment()))),
    );
    page.push_str(MCP);
    page.push_str(
        "\n## Hooks\n\nThe events of Claude Code for which `shikiri hooks install` installs a hook. Others that \
         reach `shikiri-hook` are logged.\n\n| event | calls | what Shikiri does |\n|---|---|---|\n",
    );
    for event in &EVENTS {
        let calls = match event.matcher {
            None => "all".to_owned(),
            Some("*") => "every tool".to_owned(),
            Some(tools) => format!("`{}`", table_cell(tools)),
        };
        page.push_str(&format!("| `{}` | {calls} | {} |\n", event.name, event.does));
    }
    check_reference_page("events.md", &page);
}
