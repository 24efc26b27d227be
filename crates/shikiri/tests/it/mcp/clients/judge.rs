//! What an official client must have seen.

use serde_json::{Value, json};
use shikiri_testkit::{Cut, Tenant};

use super::Era;
use super::quirks::Quirks;
use super::report::{Report, as_floats};

const AGENTS: [&str; 3] = ["long_running_agent", "research_agent", "travel_agent"];
const RUN_TOOLS: [&str; 6] =
    ["run_agent", "run_answer", "run_cancel", "run_status", "run_update", "run_wait"];

/// Judges what one client told of one era.
pub(super) struct Judge<'a> {
    pub(super) report: &'a mut Report,
    pub(super) era: Era,
    pub(super) quirks: &'a Quirks,
}

impl Judge<'_> {
    /// One check, in which everything is done on one connection.
    pub(super) fn stdio(&mut self) {
        let check = "stdio";
        self.opened(check, "/open");
        self.report.has_all(check, "/tools", &[&AGENTS[..], &RUN_TOOLS].concat());
        let told = self.all_told(check, "/progress");
        self.rises(check, &told, 8);
        self.logged(check, "/progress/logs");
        self.report.is(check, "/progress/result", json!({ "steps": 8 }));
        self.booked(check, "/accept");
        self.summarised(check, "/sampling");
    }

    /// `tenant` is whose server the client called.
    pub(super) async fn http(&mut self, tenant: &Tenant) {
        self.opened("open", "");
        self.report.has_all("tools", "", &[&AGENTS[..], &RUN_TOOLS].concat());
        self.progress(tenant).await;
        self.booked("accept", "");
        self.not_booked();
        self.summarised("sampling", "");
        self.not_summarised();
        self.resource();
        self.changed("subscription", 1);
        self.structured();
        self.prompts();
        match self.era {
            Era::Legacy => {
                self.resumed(tenant).await;
                self.changed("subscription_resume", 2);
            }
            Era::Modern => {
                self.not_resumed(tenant).await;
                self.not_resubscribed();
            }
        }
    }

    fn opened(&mut self, check: &str, path: &str) {
        let (protocol, capabilities) = match self.era {
            Era::Legacy => ("2025-11-25", "completions logging prompts resources tools"),
            Era::Modern => ("2026-07-28", "completions extensions logging prompts resources tools"),
        };
        let capabilities: Vec<_> = capabilities.split(' ').collect();
        let wanted = json!({
            "client": self.quirks.version,
            "protocol": protocol,
            "server": "shikiri",
            "capabilities": capabilities,
        });
        self.report.is(check, path, wanted);
    }

    /// A call is told what its run tells, and logs as far as they are wanted.
    async fn progress(&mut self, tenant: &Tenant) {
        let told = self.all_told("progress", "");
        self.rises("progress", &told, 8);
        self.same_as_log("progress", &told, tenant).await;
        self.logged("progress", "/logs");
        self.report.is("progress", "/result", json!({ "steps": 8 }));
        self.report.is("quiet", "", json!({ "logs": [], "result": { "steps": 2 } }));
    }

    fn logged(&mut self, check: &str, path: &str) {
        let line = |step: u32| {
            let data = format!("Processing step {step}/8 ({}%)", step * 100 / 8);
            json!({ "level": "info", "logger": "long_running_agent", "data": data })
        };
        self.report.is(check, path, (1..=8).map(line).collect());
    }

    /// The progress that a call was told, with what its client knew no use for. Other errors are
    /// wrong, except the complaint of one that comes back.
    fn all_told(&mut self, check: &str, path: &str) -> Vec<Value> {
        let mut told = list(self.report.saw(check, &format!("{path}/progress")));
        for error in list(self.report.saw(check, &format!("{path}/errors"))) {
            let text = error.as_str().unwrap_or_default();
            let late = self.quirks.late_progress.and_then(|complaint| text.strip_prefix(complaint));
            match late.map(serde_json::from_str::<Value>) {
                Some(Ok(late)) => told.push(told_by(&late["params"])),
                _ => {
                    let known = self.quirks.complaint.is_some_and(|known| text.starts_with(known));
                    self.report.is_so(check, &format!("it is all right: {text}"), known);
                }
            }
        }
        told
    }

    /// Progress goes forward, to 100 of 100.
    fn rises(&mut self, check: &str, told: &[Value], least: usize) {
        let values: Vec<f64> = told.iter().filter_map(|one| one[0].as_f64()).collect();
        let whole = values.len() == told.len() && values.len() >= least;
        self.report.is_so(
            check,
            &format!("{least} times progress or more: {}", json!(told)),
            whole,
        );
        self.report.is_so(check, &format!("it goes forward: {values:?}"), values.is_sorted());
        let last = told.last().map(|last| json!([last[0], last[1]]));
        let is_end = last == Some(json!([100.0, 100.0]));
        self.report.is_so(check, &format!("it ends with 100 of 100: {}", json!(told)), is_end);
    }

    /// What was told is what stands in the run's stream, once and in order.
    async fn same_as_log(&mut self, check: &str, told: &[Value], tenant: &Tenant) {
        let run = self.report.saw(check, "/run");
        let Some(run) = run.as_str() else { return };
        let log = progress_of(tenant, run).await;
        let told = without_heartbeats(told, &log);
        let what = format!("told {}, as the run: {}", json!(told), json!(log));
        self.report.is_so(check, &what, told == log);
    }

    fn booked(&mut self, check: &str, path: &str) {
        self.report.is(check, &format!("{path}/asked"), question());
        self.travelled(check, path, &["Booking flight...", "Booked"]);
        self.report.is(check, &format!("{path}/result"), trip("booked", "窓側"));
    }

    /// Who says no, and who cannot be asked.
    fn not_booked(&mut self) {
        self.report.is("decline", "/asked", question());
        self.travelled("decline", "", &["Cancelled"]);
        self.report.is("decline", "/result", trip("cancelled", ""));
        self.report.is("no_elicitation", "/asked", json!([]));
        let unasked = super::super::samples::UNASKED;
        self.report.is("no_elicitation", "/result", trip("cancelled", unasked));
    }

    /// What was told before the question, and after it.
    fn travelled(&mut self, check: &str, path: &str, after: &[&str]) {
        let steps = ["Checking flights...", "Finding available dates...", "Confirming prices..."];
        let own = self.quirks.own_progress.filter(|_| self.era == Era::Modern);
        let mut wanted: Vec<&str> = steps.into_iter().chain(own).collect();
        wanted.extend(after);
        let told = self.all_told(check, path);
        // A busy machine may cause a heartbeat: "queued", or what was told last and a fraction more.
        let is_own = |one: &&Value| one[0].as_f64().is_some_and(|value| value.fract() == 0.0);
        let told = told.iter().filter(is_own).filter_map(|one| one[2].as_str());
        let told: Vec<_> = told.filter(|said| *said != "queued").collect();
        self.report.is_so(check, &format!("told {told:?}, wanted {wanted:?}"), told == wanted);
    }

    fn summarised(&mut self, check: &str, path: &str) {
        let text = "Please summarize the key findings for research on: 錠前";
        let messages = json!([{ "role": "user", "content": { "type": "text", "text": text } }]);
        let asked = json!([{ "messages": messages, "maxTokens": 100 }]);
        self.report.is(check, &format!("{path}/asked"), asked);
        let result =
            json!({ "topic": "錠前", "summary": "要するに鍵", "summary_source": "client" });
        self.report.is(check, &format!("{path}/result"), result);
    }

    fn not_summarised(&mut self) {
        let result = json!({ "topic": "錠前", "summary": "", "summary_source": "none" });
        self.report.is("no_sampling", "", json!({ "asked": [], "result": result }));
    }

    fn resource(&mut self) {
        let check = "resource";
        let (run, waited) = (self.report.saw(check, "/run"), self.report.saw(check, "/waited"));
        let uri = format!("shikiri://runs/{}", run.as_str().unwrap_or_default());
        self.report.is(check, "/uri", json!(uri));
        self.report.is(check, "/read", waited);
        self.report.is(check, "/read/run_id", run);
        self.report.is(check, "/read/status", json!("completed"));
        self.report.is(check, "/read/result", json!({ "steps": 3 }));
        self.report.is(check, "/events/0", json!("queued"));
        self.report.has_all(check, "/events", &["started", "progress", "result"]);
        self.report.is(check, "/listed", json!(true));
        let templates = ["shikiri://runs/{id}", "shikiri://runs/{id}/events"];
        self.report.has_all(check, "/templates", &templates);
        self.report.contains(check, "/missing", "there is no resource");
    }

    /// A client that reads when it is told to has seen the end.
    fn changed(&mut self, check: &str, least: u32) {
        self.report.is(check, "/first", json!("waiting"));
        self.report.is(check, "/last/status", json!("completed"));
        self.report.is(check, "/last/result/booked", json!(true));
        let changes = self.report.saw(check, "/changes").as_f64().unwrap_or(0.0);
        let enough = changes >= f64::from(least);
        self.report.is_so(check, &format!("{least} changes or more: {changes}"), enough);
    }

    /// The modern era tells nothing again.
    fn not_resubscribed(&mut self) {
        let check = "subscription_resume";
        self.report.is(check, "/lost", json!(self.quirks.cut_changes));
        self.report.is(check, "/last/status", json!("completed"));
        self.report.is(check, "/last/result/booked", json!(true));
    }

    fn structured(&mut self) {
        self.report.is("structured", "/result", Value::Null);
        self.report.is("structured", "/handed_over", Value::Null);
        let refused = self.report.saw("structured", "/neither").is_string();
        self.report.is_so("structured", "a wrong form is refused", refused);
        self.report.is("handed_over", "/is_linked", json!(true));
        self.report.is("handed_over", "/is_error", json!(false));
        let status = self.report.saw("handed_over", "/status");
        let goes_on = status == json!("running") || status == json!("queued");
        self.report.is_so("handed_over", &format!("the run goes on: {status}"), goes_on);
    }

    fn prompts(&mut self) {
        self.report.has_all("prompts", "/names", &AGENTS);
        let call = r#"`travel_agent` with the arguments {"destination":"京都","step_ms":5}"#;
        self.report.contains("prompts", "/text", call);
        self.report.contains("prompts", "/unknown", "has no argument \"colour\"");
        let run = self.report.saw("completion", "/run");
        self.report.is("completion", "/prompt", json!(["Paris"]));
        self.report.has_all("completion", "/resource", &[run.as_str().unwrap_or_default()]);
    }

    /// However the client comes back, it is told everything, and the work is done once.
    async fn resumed(&mut self, tenant: &Tenant) {
        for (check, steps) in [("resume", 16), ("resume_twice", 24), ("resume_by_token", 4)] {
            self.report.is(check, "/result", json!({ "steps": steps }));
            let mut told = self.all_told(check, "");
            if check == "resume_twice" {
                self.take_out_repeats(check, &mut told);
            }
            self.rises(check, &told, steps);
            self.same_as_log(check, &told, tenant).await;
            self.ran_once(check, steps, tenant).await;
        }
    }

    /// What this client is known to tell twice.
    fn take_out_repeats(&mut self, check: &str, told: &mut Vec<Value>) {
        for step in self.quirks.repeats {
            let twice = told.iter().filter(|one| one[2] == **step).count() == 2;
            self.report.is_so(check, &format!("{step:?} comes twice: {}", json!(told)), twice);
            if let Some(first) = told.iter().position(|one| twice && one[2] == **step) {
                told.remove(first);
            }
        }
    }

    async fn ran_once(&mut self, check: &str, steps: usize, tenant: &Tenant) {
        let page = tenant.client.get(&tenant.path("/runs?limit=200")).await.expect(200);
        let runs = list(page["items"].clone());
        let count = runs.iter().filter(|run| run["input"]["steps"] == json!(steps)).count();
        self.report.is_so(check, &format!("one run of {steps} steps, not {count}"), count == 1);
    }

    /// The modern era has no way back to a call: it is lost to the client, and its run is stopped.
    async fn not_resumed(&mut self, tenant: &Tenant) {
        let check = "resume";
        self.report.contains(check, "/lost", self.quirks.cut_call);
        self.report.is(check, "/status/status", json!("cancelled"));
        self.ran_once(check, 16, tenant).await;
        let run = self.report.saw(check, "/status/run_id");
        let Some(run) = run.as_str() else { return };
        let log = progress_of(tenant, run).await;
        let told = list(self.report.saw(check, "/progress"));
        let told = without_heartbeats(&told, &log);
        // The third is what was cut.
        let first_two = told.len() == 2 && log.starts_with(&told);
        let what = format!("told the first two of {}: {}", json!(log), json!(told));
        self.report.is_so(check, &what, first_two);
    }
}

/// The run's own word on its progress.
async fn progress_of(tenant: &Tenant, run: &str) -> Vec<Value> {
    let frames = tenant.reader(run, Cut::End).rest().await;
    let told = frames.iter().filter(|frame| frame.event == "progress");
    told.map(|frame| told_by(&frame.json())).collect()
}

fn told_by(params: &Value) -> Value {
    as_floats(json!([params["progress"], params["total"], params["message"]]))
}

/// A busy machine may cause heartbeats, which say what the run itself did not say.
fn without_heartbeats(told: &[Value], log: &[Value]) -> Vec<Value> {
    told.iter().filter(|one| log.contains(one)).cloned().collect()
}

fn question() -> Value {
    json!([{
        "mode": "form",
        "message": "Please confirm the estimated price of $1200 for your trip to 京都",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "confirm": { "type": "boolean", "description": "Book at this price" },
                "notes": { "type": "string", "description": "Anything to keep in mind" },
            },
            "required": ["confirm"],
        },
    }])
}

fn trip(status: &str, notes: &str) -> Value {
    json!({
        "destination": "京都",
        "status": status,
        "booked": status == "booked",
        "price_usd": 1200,
        "notes": notes,
    })
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}
