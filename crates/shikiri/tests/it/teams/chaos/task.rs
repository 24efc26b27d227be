//! Who works on a task: it asks what to do, delegates, waits for the outcome, and reports.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::door::Reply;
use super::journal::{Outcome, now_ms};
use super::player::{Player, Stop, WAIT, items, text_of};

pub(crate) struct TaskPlayer {
    player: Player,
    /// The task that it is at.
    task: Option<String>,
    /// Its tasks in this life: another one may be ready while one waits for a delegation.
    works: BTreeMap<String, Work>,
    /// Looks that gave nothing to do.
    quiet: u32,
}

/// What it knows of one task.
#[derive(Default)]
struct Work {
    /// Delegations of which it knows that they were made.
    made: u32,
    results: BTreeSet<String>,
    is_reported: bool,
}

/// After so many looks for nothing, in this life, it goes: the session of an earlier life may
/// still hold the task, but not for longer.
const PATIENCE: u32 = 6;

impl TaskPlayer {
    pub(crate) fn new(player: Player) -> Self {
        Self { player, task: None, works: BTreeMap::new(), quiet: 0 }
    }

    pub(crate) async fn play(mut self) {
        while let Err(stop) = self.live().await {
            if !self.player.comes_back(stop) {
                break;
            }
            (self.task, self.quiet) = (None, 0);
            self.works.clear();
        }
        let busy = &self.player.stage.busy;
        busy.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }

    async fn live(&mut self) -> Result<(), Stop> {
        self.player.log_in().await?;
        while self.quiet < PATIENCE {
            let look = json!({ "wait_seconds": WAIT });
            let Some(next) = self.player.call("get_next_action", look).await? else { continue };
            match next["action"].as_str() {
                Some("work") => {
                    self.take(&next);
                    if self.is_over() {
                        self.report().await?;
                        if self.has_reported_all() {
                            return Ok(());
                        }
                        continue;
                    }
                    self.delegate().await?;
                }
                Some("wait_for_delegation") => {
                    self.work().made = self.work().made.max(1);
                    self.quiet += 1;
                }
                Some("delegation_result") => self.hear(&next),
                _ => self.quiet += 1,
            }
        }
        Ok(())
    }

    fn take(&mut self, next: &Value) {
        self.task = Some(text_of(&next["task"], "id"));
        self.work();
        self.quiet += 1;
    }

    fn has_reported_all(&self) -> bool {
        let open = |(task, work): (&String, &Work)| !task.is_empty() && !work.is_reported;
        !self.works.iter().any(open)
    }

    /// What it knows of the task that it is at.
    fn work(&mut self) -> &mut Work {
        self.works.entry(self.task.clone().unwrap_or_default()).or_default()
    }

    /// It got what it wanted, or does not get it.
    fn is_over(&mut self) -> bool {
        self.work().made > self.player.plan.loops || self.quiet >= PATIENCE - 1
    }

    async fn delegate(&mut self) -> Result<(), Stop> {
        let task = self.task.clone().unwrap_or_default();
        let wanted = json!({
            "target_agent_id": self.player.partner(),
            "purpose": format!("しりとりを6往復 {task}"),
            "context": task,
        });
        match self.player.call_once("delegate_to_chat_session", wanted).await? {
            Reply::Done(answer) => {
                self.work().made += 1;
                let delegated = (self.player.who.clone(), text_of(&answer, "delegation_id"), task);
                self.player.stage.journal.notes().delegated.push(delegated);
            }
            // As deep as it goes, or too many: it does without.
            Reply::Refused(_) => self.work().made += 1,
            // The next action shows whether it was made.
            Reply::Lost => {}
        }
        Ok(())
    }

    fn hear(&mut self, next: &Value) {
        let delegation = text_of(next, "delegation_id");
        let task = next["task_id"].as_str().unwrap_or_default().to_owned();
        if self.works.contains_key(&task) {
            // It goes on with the task that the outcome names.
            self.task = Some(task.clone());
        }
        self.work().made = self.work().made.max(1);
        self.quiet = 0;
        self.work().results.insert(delegation.clone());
        let messages = items(next, "messages").iter();
        let outcome = Outcome {
            by: self.player.who.clone(),
            // Of a task of an earlier life, perhaps, which was left with an open delegation.
            task: if task.is_empty() { self.task.clone() } else { Some(task) },
            delegation,
            status: text_of(next, "status"),
            contents: messages.map(|message| text_of(message, "content")).collect(),
            at_ms: now_ms(),
        };
        self.player.stage.journal.notes().outcomes.push(outcome);
    }

    async fn report(&mut self) -> Result<(), Stop> {
        let Some(task) = self.task.clone() else { return Ok(()) };
        let status = if self.work().results.is_empty() { "blocked" } else { "done" };
        self.work().is_reported = true;
        let report = json!({ "task_id": task, "status": status, "result": "しりとり" });
        let times = if self.player.plan.reports_twice { 2 } else { 1 };
        for _ in 0..times {
            let answer = self.player.call("report_completed", report.clone()).await?;
            if answer.is_some() && status == "done" {
                self.player.stage.journal.notes().done.push(task.clone());
            }
        }
        Ok(())
    }
}
