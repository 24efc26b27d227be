//! The run's state machine, readable as a table: (status, command) → what happens.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Answer, Outcome, Question, Run, RunError, RunStatus};
use crate::event::NewEvent;
use crate::execution::{Conclusion, Ending};
use crate::ids::{NodeId, QuestionId};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// The first: puts a new run in the queue.
    Enqueue,
    /// A worker takes it up, for the first time or again.
    Start { node: NodeId },
    /// The agent asks; the run goes on until it has nothing else to do.
    Ask(Question),
    /// Somebody answers, whoever is working on the run and wherever.
    Answer { question: QuestionId, answer: Answer },
    /// Somebody redirects the run. Its agent looks when it can; nothing is woken for it.
    Input(Value),
    /// A child that the agent called has ended.
    ChildEnded { index: u64, child: String, outcome: Outcome },
    /// The agent has nothing to do until an answer, a child or `until`.
    Suspend { seen_wakes: u64, until: Option<Timestamp> },
    /// The agent's function has returned.
    Finish(Outcome),
    /// The execution's engine has ended, or its time is over, or its node is gone.
    Conclude(Conclusion),
    /// Somebody wants it stopped.
    Cancel,
    /// The node that worked on it is gone.
    Lose { node: NodeId },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub run: Run,
    pub events: Vec<NewEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the run has ended ({})", .0.as_str())]
    Ended(RunStatus),
    #[error("no open question {0}: it was answered, has expired or never was")]
    NoSuchQuestion(QuestionId),
    #[error("the run is {}, which does not allow that", .0.as_str())]
    NotNow(RunStatus),
    #[error(
        "the run has been given {MAX_INPUTS} inputs, which is the most it takes: start another"
    )]
    TooManyInputs,
    #[error("has {0} bytes of JSON; at most {MAX_INPUT_BYTES} are taken")]
    LargeInput(usize),
}

/// Inputs lie in the run's record, which is written anew with every change of the run.
const MAX_INPUTS: usize = 100;
const MAX_INPUT_BYTES: usize = 64 * 1024;

pub fn decide(run: &Run, command: Command, now: Timestamp) -> Result<Decision, Refusal> {
    use RunStatus::{Queued, Running, Waiting};
    let next = Next { run: run.clone(), events: Vec::new() };
    match (run.status, command) {
        (status, _) if status.is_terminal() => Err(Refusal::Ended(status)),

        (Queued, Command::Enqueue) => Ok(next.enqueued()),
        // An execution has a bill: whoever takes it up concludes it.
        (Queued | Waiting, Command::Start { .. })
            if run.cancel_requested && run.execution.is_none() =>
        {
            Ok(next.finished(Outcome::Cancelled, now))
        }
        (Queued | Waiting, Command::Start { node }) => Ok(next.started(node, now)),

        (Running, Command::Ask(question)) => Ok(next.asked(question)),
        (Running, Command::Suspend { seen_wakes, until }) => {
            Ok(next.suspended(seen_wakes, until, now))
        }
        (Running, Command::Finish(outcome)) => Ok(next.finished(outcome, now)),
        (Running, Command::Conclude(conclusion)) => next.concluded(conclusion, now),

        (_, Command::Answer { question, answer }) => next.answered(&question, &answer, now),
        (_, Command::Input(input)) => next.redirected(input),
        (_, Command::ChildEnded { index, child, outcome }) => {
            Ok(next.child_ended(index, &child, &outcome, now))
        }

        (Queued | Waiting, Command::Cancel) if run.execution.is_none() => {
            Ok(next.finished(Outcome::Cancelled, now))
        }
        (Queued | Waiting | Running, Command::Cancel) => Ok(next.cancel_requested()),

        // Most executions cannot be taken up again: whoever finds such a one lost concludes it.
        (Running, Command::Lose { node }) if run.node.as_ref() == Some(&node) && run.goes_on() => {
            Ok(next.requeued(now))
        }
        (status, _) => Err(Refusal::NotNow(status)),
    }
}

/// Losses in a row after which a run is taken up again without a pause.
const PROMPT_LOSSES: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A run on its way to the next state.
struct Next {
    run: Run,
    events: Vec<NewEvent>,
}

impl Next {
    fn tell(&mut self, kind: &'static str, data: &Value) {
        self.events.push(NewEvent::from_value(kind, data));
    }

    /// Of the machinery: readers of an execution get what its engine tells, and nothing else.
    fn tell_of_agent(&mut self, kind: &'static str, data: &Value) {
        if self.run.execution.is_none() {
            self.tell(kind, data);
        }
    }

    fn done(self) -> Decision {
        Decision { run: self.run, events: self.events }
    }

    fn enqueued(mut self) -> Decision {
        let parent = self.run.parent.as_ref().map(|parent| parent.run.as_str());
        let mut data = json!({ "agent": self.run.agent, "parent_run_id": parent });
        if let Some(origin) = &self.run.origin {
            data["origin"] = origin.clone();
        }
        self.tell_of_agent("queued", &data);
        self.done()
    }

    fn started(mut self, node: NodeId, now: Timestamp) -> Decision {
        self.run.status = RunStatus::Running;
        self.run.node = Some(node);
        self.run.due_at = None;
        self.run.starts += 1;
        self.tell_of_agent("started", &json!({ "attempt": self.run.starts }));
        self.expire_questions(now);
        self.done()
    }

    fn expire_questions(&mut self, now: Timestamp) {
        let expired = |q: &Question| q.expires_at.is_some_and(|at| at <= now);
        let (gone, open) = self.run.questions.drain(..).partition::<Vec<_>, _>(expired);
        self.run.questions = open;
        for question in gone {
            self.tell_answer(&question, &Answer::timeout());
        }
    }

    fn asked(mut self, question: Question) -> Decision {
        let mut data = json!({
            "index": question.index,
            "question_id": question.id,
            "kind": question.kind,
            "message": question.message,
            "schema": question.schema,
            "expires_at": question.expires_at,
        });
        if let Some(name) = &question.name {
            data["name"] = json!(name);
        }
        self.tell("question", &data);
        self.run.questions.push(question);
        self.done()
    }

    fn answered(
        mut self,
        id: &QuestionId,
        answer: &Answer,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let at = self.run.questions.iter().position(|q| q.id == *id);
        let question = at.map(|at| self.run.questions.remove(at));
        match question {
            // Too late is too late, even if the worker has not woken yet.
            Some(question) if question.expires_at.is_none_or(|at| at > now) => {
                self.tell_answer(&question, answer);
                self.wake(now);
                Ok(self.done())
            }
            _ => Err(Refusal::NoSuchQuestion(id.clone())),
        }
    }

    fn tell_answer(&mut self, question: &Question, answer: &Answer) {
        let mut data = json!({
            "index": question.index,
            "question_id": question.id,
            "action": answer.action,
            "content": answer.content,
        });
        if let Some(reason) = &answer.reason {
            data["reason"] = json!(reason);
        }
        self.tell("answer", &data);
    }

    fn redirected(mut self, input: Value) -> Result<Decision, Refusal> {
        if self.run.inputs.len() >= MAX_INPUTS {
            return Err(Refusal::TooManyInputs);
        }
        let bytes = input.to_string().len();
        if bytes > MAX_INPUT_BYTES {
            return Err(Refusal::LargeInput(bytes));
        }
        let number = self.run.inputs.len() + 1;
        self.tell("input", &json!({ "number": number, "input": input }));
        self.run.inputs.push(input);
        Ok(self.done())
    }

    fn child_ended(
        mut self,
        index: u64,
        child: &str,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Decision {
        let (status, result, error) = match outcome {
            Outcome::Completed(value) => ("completed", Some(value), None),
            Outcome::Failed(error) => ("failed", None, Some(error)),
            Outcome::Cancelled => ("cancelled", None, None),
        };
        let data = json!({
            "index": index,
            "child_run_id": child,
            "status": status,
            "result": result,
            "error": error,
        });
        self.tell("child_ended", &data);
        self.wake(now);
        self.done()
    }

    /// Something came from outside: a waiting run goes back to the queue.
    fn wake(&mut self, now: Timestamp) {
        self.run.wakes += 1;
        if self.run.status == RunStatus::Waiting {
            self.run.status = RunStatus::Queued;
            self.run.due_at = Some(now);
        }
    }

    fn suspended(mut self, seen_wakes: u64, until: Option<Timestamp>, now: Timestamp) -> Decision {
        self.run.node = None;
        self.run.losses = 0;
        if self.run.cancel_requested || self.run.wakes != seen_wakes {
            // What it would wait for has come already.
            self.run.status = RunStatus::Queued;
            self.run.due_at = Some(now);
        } else {
            let deadlines = self.run.questions.iter().filter_map(|q| q.expires_at);
            self.run.due_at = deadlines.chain(until).min();
            self.run.status = RunStatus::Waiting;
            self.tell("waiting", &json!({ "until": self.run.due_at }));
        }
        self.done()
    }

    fn finished(mut self, outcome: Outcome, now: Timestamp) -> Decision {
        // Asked to stop, an agent may still fail on the way: that is a cancelled run, not a failed one.
        let outcome = match outcome {
            Outcome::Failed(_) if self.run.cancel_requested => Outcome::Cancelled,
            other => other,
        };
        match outcome {
            Outcome::Completed(result) => {
                self.run.status = RunStatus::Completed;
                self.tell("result", &json!({ "result": result }));
                self.run.result = Some(result);
            }
            Outcome::Failed(error) => {
                self.run.status = RunStatus::Failed;
                self.fail(error);
            }
            Outcome::Cancelled => {
                self.run.status = RunStatus::Cancelled;
                self.fail(RunError::new("CANCELLED", "the run was cancelled"));
            }
        }
        self.ended(now)
    }

    fn ended(mut self, now: Timestamp) -> Decision {
        self.run.node = None;
        self.run.due_at = None;
        self.run.questions.clear();
        self.run.ended_at = Some(now);
        self.done()
    }

    fn concluded(mut self, conclusion: Conclusion, now: Timestamp) -> Result<Decision, Refusal> {
        let Conclusion { ending, usage, total_cost_usd } = conclusion;
        let Some(execution) = &mut self.run.execution else {
            return Err(Refusal::NotNow(self.run.status));
        };
        (execution.usage, execution.total_cost_usd) = (usage, total_cost_usd);
        match ending {
            Ending::Result { data, error } => {
                self.tell("result", &data);
                self.run.status =
                    if error.is_some() { RunStatus::Failed } else { RunStatus::Completed };
                self.run.result = Some(data);
                self.run.error = error;
            }
            Ending::Error(error) => {
                let is_cancelled = error.code == "CANCELLED";
                self.run.status =
                    if is_cancelled { RunStatus::Cancelled } else { RunStatus::Failed };
                self.fail(error);
            }
        }
        Ok(self.ended(now))
    }

    fn fail(&mut self, error: RunError) {
        self.tell("error", &json!({ "code": error.code, "message": error.message }));
        self.run.error = Some(error);
    }

    fn cancel_requested(mut self) -> Decision {
        if !self.run.cancel_requested {
            self.run.cancel_requested = true;
            self.tell_of_agent("cancel_requested", &json!({}));
        }
        self.done()
    }

    /// At once for the first few times; a run that keeps losing its node must not keep the others
    /// from working.
    fn requeued(mut self, now: Timestamp) -> Decision {
        self.run.losses = self.run.losses.saturating_add(1);
        let pause = match self.run.losses.saturating_sub(PROMPT_LOSSES) {
            0 => Duration::ZERO,
            many => LONGEST_PAUSE.min(Duration::from_secs(1 << many.min(6))),
        };
        self.run.status = RunStatus::Queued;
        self.run.node = None;
        self.run.due_at = Some(now + pause);
        self.tell_of_agent("node_lost", &json!({}));
        self.done()
    }
}
