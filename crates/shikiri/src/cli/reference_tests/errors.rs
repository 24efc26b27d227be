//! `docs/reference/errors.md`, from the codes that the program gives its failures.

use shikiri_app::problem::ProblemCode;
use shikiri_lanes::LaneErrorCode;
use shikiri_mcp::{RPC_ERRORS, RunToolErrorCode};
use shikiri_model::run::{RunErrorCode, WarningCode};
use shikiri_model::team::RefusalCode;
use shikiri_testkit::check_reference_page;

use super::{paragraphs, rows};

const HEAD: &str = "\
# Errors

<!-- Made by `cargo xtask reference` from the comments of the codes: crates/shikiri-app/src/problem_code.rs,
crates/shikiri-model/src/run/error_code.rs and team/team_refusal.rs, crates/shikiri-lanes/src/lane_error.rs,
crates/shikiri-mcp/src/tools/mod.rs and rpc_error.rs. -->

Programs compare the code. The text beside it is for people and may change.

## REST

A failed request is answered with `application/problem+json`: `type`, `title`, `status`, `detail`, `code`, and where
they help `field`, `retry_after_ms`, `execution_id` and `error_id`. A record of another tenant is answered as if it
were not there.

| code | status | meaning | what to do |
|---|---|---|---|
";
const CODES: &str = "| code | meaning | what to do |\n|---|---|---|\n";

#[test]
fn the_reference_has_every_error_code() {
    let mut page = HEAD.to_owned();
    for code in ProblemCode::ALL {
        let (status, name, _) = code.row();
        let (meaning, advice) = paragraphs(code.comment());
        page.push_str(&format!("| `{name}` | {} | {meaning} | {advice} |\n", status.as_u16()));
    }
    let mut section = |title: &str, text: &str, rows: String| {
        page.push_str(&format!("\n## {title}\n\n{text}\n\n{CODES}{rows}"));
    };
    section(
        "Runs and executions",
        "The code of a run that failed: in its `error`, and in the event `error`. MCP clients get it as a tool's \
         error.",
        rows(RunErrorCode::ALL.map(|code| (code.as_str(), code.comment()))),
    );
    section(
        "Warnings",
        "The code of an execution's event `warning`. The turn goes on.",
        rows(WarningCode::ALL.map(|code| (code.as_str(), code.comment()))),
    );
    section(
        "Questions to chat pages",
        "The code of a run of `ask_chatgpt_web`, `ask_gemini_web` or `ask_chatgpt_gemini_web` that failed, and of an \
         entry in the history.",
        rows(LaneErrorCode::ALL.map(|code| (code.as_str(), code.comment()))),
    );
    section(
        "Refusals of team tools",
        "MCP tools for teams answer with `isError` and `{\"error\": {\"code\", \"message\"}}` as structured content.",
        rows(RefusalCode::ALL.map(|code| (code.as_str(), code.comment()))),
    );
    section(
        "Refusals of run tools",
        "The same form, from `run_status`, `run_wait`, `run_answer` and the other tools about runs.",
        rows(RunToolErrorCode::ALL.map(|code| (code.as_str(), code.comment()))),
    );
    page.push_str(
        "\n## The MCP protocol\n\nErrors of JSON-RPC. In 2026-07-28 they have an HTTP status; in older revisions it is \
         200.\n\n| code | status | meaning |\n|---|---|---|\n",
    );
    for (code, meaning) in RPC_ERRORS {
        let status = shikiri_mcp::RpcError::new(code, "").status();
        page.push_str(&format!("| `{}` | {} | {meaning} |\n", code.0, status.as_u16()));
    }
    check_reference_page("errors.md", &page);
}
