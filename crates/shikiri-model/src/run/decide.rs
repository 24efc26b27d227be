//! The run's state machine as a table: (status, command) → changes and events.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    QuestionAnswer, Run, RunError, RunErrorCode, RunEventName, RunOutcome, RunQuestion, RunStatus,
};
use crate::event::NewEvent;
use crate::execution::{ExecutionConclusion, ExecutionOutcome};
use crate::ids::{NodeId, QuestionId};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub enum RunCommand {
    /// Puts a new run in the queue.
    Enqueue,
    /// A worker starts or resumes the run.
    Start { node: NodeId },
    /// The agent asks a question. The run continues until it has nothing else to do.
    Ask(RunQuestion),
    /// An answer to a question, from any node.
    Answer { question: QuestionId, answer: QuestionAnswer },
    /// New input for the run. Its agent reads it at its next check; the run is not woken.
    Input(Value),
    /// A child run has ended.
    ChildEnded { index: u64, child: String, outcome: RunOutcome },
    /// The agent waits for an answer, a child or `until`.
    Suspend { seen_wakes: u64, until: Option<Timestamp> },
    /// The agent's function returned.
    Finish(RunOutcome),
    /// The execution's engine ended, its time is over, or its node is gone.
    Conclude(ExecutionConclusion),
    /// A request to stop the run.
    Cancel,
    /// The node that worked on the run is gone.
    Lose { node: NodeId },
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunDecision {
    pub run: Run,
    pub events: Vec<NewEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunRefusal {
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

/// Inputs are part of the run's record, which is rewritten with every change of the run.
const MAX_INPUTS: usize = 100;
const MAX_INPUT_BYTES: usize = 64 * 1024;

pub fn decide(run: &Run, command: RunCommand, now: Timestamp) -> Result<RunDecision, RunRefusal> {
    use RunStatus::{Queued, Running, Waiting};
    let next = RunTransition { run: run.clone(), events: Vec::new() };
    match (run.status, command) {
        (status, _) if status.is_terminal() => Err(RunRefusal::Ended(status)),

        (Queued, RunCommand::Enqueue) => Ok(next.enqueued()),
        // An execution has a bill, so the worker that resumes it concludes it.
        (Queued | Waiting, RunCommand::Start { .. })
            if run.cancel_requested && run.execution.is_none() =>
        {
            Ok(next.finished(RunOutcome::Cancelled, now))
        }
        (Queued | Waiting, RunCommand::Start { node }) => Ok(next.started(node, now)),

        (Running, RunCommand::Ask(question)) => Ok(next.asked(question)),
        (Running, RunCommand::Suspend { seen_wakes, until }) => {
            Ok(next.suspended(seen_wakes, until, now))
        }
        (Running, RunCommand::Finish(outcome)) => Ok(next.finished(outcome, now)),
        (Running, RunCommand::Conclude(conclusion)) => next.concluded(conclusion, now),
        // One that waits for its conversation has spent nothing.
        (Queued, RunCommand::Finish(outcome)) if run.is_waiting_execution() => {
            Ok(next.finished(outcome, now))
        }
        (Queued, RunCommand::Cancel) if run.is_waiting_execution() => {
            Ok(next.finished(RunOutcome::Cancelled, now))
        }

        (_, RunCommand::Answer { question, answer }) => next.answered(&question, &answer, now),
        (_, RunCommand::Input(input)) => next.redirected(input),
        (_, RunCommand::ChildEnded { index, child, outcome }) => {
            Ok(next.child_ended(index, &child, &outcome, now))
        }

        (Queued | Waiting, RunCommand::Cancel) if run.execution.is_none() => {
            Ok(next.finished(RunOutcome::Cancelled, now))
        }
        (Queued | Waiting | Running, RunCommand::Cancel) => Ok(next.cancel_requested()),

        // Most executions cannot be resumed. The node that finds one lost concludes it.
        (Running, RunCommand::Lose { node })
            if run.node.as_ref() == Some(&node) && run.is_resumable() =>
        {
            Ok(next.requeued(now))
        }
        (status, _) => Err(RunRefusal::NotNow(status)),
    }
}

/// Consecutive losses after which a run is requeued with a pause.
const PROMPT_LOSSES: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A run and the events of its transition.
struct RunTransition {
    run: Run,
    events: Vec<NewEvent>,
}

impl RunTransition {
    fn tell(&mut self, name: RunEventName, data: &Value) {
        self.events.push(NewEvent::from_value(name.as_str(), data));
    }

    /// Internal events. Readers of an execution get only the events of its engine.
    fn tell_of_agent(&mut self, name: RunEventName, data: &Value) {
        if self.run.execution.is_none() {
            self.tell(name, data);
        }
    }

    fn done(self) -> RunDecision {
        RunDecision { run: self.run, events: self.events }
    }

    fn enqueued(mut self) -> RunDecision {
        let parent = self.run.parent.as_ref().map(|parent| parent.run.as_str());
        let mut data = json!({ "agent": self.run.agent, "parent_run_id": parent });
        if let Some(origin) = &self.run.origin {
            data["origin"] = origin.clone();
        }
        self.tell_of_agent(RunEventName::Queued, &data);
        self.done()
    }

    fn started(mut self, node: NodeId, now: Timestamp) -> RunDecision {
        self.run.status = RunStatus::Running;
        self.run.node = Some(node);
        self.run.due_at = None;
        self.run.starts += 1;
        self.tell_of_agent(RunEventName::Started, &json!({ "attempt": self.run.starts }));
        self.expire_questions(now);
        self.done()
    }

    fn expire_questions(&mut self, now: Timestamp) {
        let expired = |q: &RunQuestion| q.expires_at.is_some_and(|at| at <= now);
        let (gone, open) = self.run.questions.drain(..).partition::<Vec<_>, _>(expired);
        self.run.questions = open;
        for question in gone {
            self.tell_answer(&question, &QuestionAnswer::timeout());
        }
    }

    fn asked(mut self, question: RunQuestion) -> RunDecision {
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
        self.tell(RunEventName::Question, &data);
        self.run.questions.push(question);
        self.done()
    }

    fn answered(
        mut self,
        id: &QuestionId,
        answer: &QuestionAnswer,
        now: Timestamp,
    ) -> Result<RunDecision, RunRefusal> {
        let at = self.run.questions.iter().position(|q| q.id == *id);
        let question = at.map(|at| self.run.questions.remove(at));
        match question {
            // An expired question is refused even if the worker has not woken yet.
            Some(question) if question.expires_at.is_none_or(|at| at > now) => {
                self.tell_answer(&question, answer);
                self.wake(now);
                Ok(self.done())
            }
            _ => Err(RunRefusal::NoSuchQuestion(id.clone())),
        }
    }

    fn tell_answer(&mut self, question: &RunQuestion, answer: &QuestionAnswer) {
        let mut data = json!({
            "index": question.index,
            "question_id": question.id,
            "action": answer.action,
            "content": answer.content,
        });
        if let Some(reason) = &answer.reason {
            data["reason"] = json!(reason);
        }
        self.tell(RunEventName::Answer, &data);
    }

    fn redirected(mut self, input: Value) -> Result<RunDecision, RunRefusal> {
        if self.run.inputs.len() >= MAX_INPUTS {
            return Err(RunRefusal::TooManyInputs);
        }
        let bytes = input.to_string().len();
        if bytes > MAX_INPUT_BYTES {
            return Err(RunRefusal::LargeInput(bytes));
        }
        let number = self.run.inputs.len() + 1;
        self.tell(RunEventName::Input, &json!({ "number": number, "input": input }));
        self.run.inputs.push(input);
        Ok(self.done())
    }

    fn child_ended(
        mut self,
        index: u64,
        child: &str,
        outcome: &RunOutcome,
        now: Timestamp,
    ) -> RunDecision {
        let (status, result, error) = match outcome {
            RunOutcome::Completed(value) => ("completed", Some(value), None),
            RunOutcome::Failed(error) => ("failed", None, Some(error)),
            RunOutcome::Cancelled => ("cancelled", None, None),
        };
        let data = json!({
            "index": index,
            "child_run_id": child,
            "status": status,
            "result": result,
            "error": error,
        });
        self.tell(RunEventName::ChildEnded, &data);
        self.wake(now);
        self.done()
    }

    /// Records an arrival from outside. A waiting run goes back to the queue.
    fn wake(&mut self, now: Timestamp) {
        self.run.wakes += 1;
        if self.run.status == RunStatus::Waiting {
            self.run.status = RunStatus::Queued;
            self.run.due_at = Some(now);
        }
    }

    fn suspended(
        mut self,
        seen_wakes: u64,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> RunDecision {
        self.run.node = None;
        self.run.losses = 0;
        if self.run.cancel_requested || self.run.wakes != seen_wakes {
            // The event that the run would wait for has come already.
            self.run.status = RunStatus::Queued;
            self.run.due_at = Some(now);
        } else {
            let deadlines = self.run.questions.iter().filter_map(|q| q.expires_at);
            self.run.due_at = deadlines.chain(until).min();
            self.run.status = RunStatus::Waiting;
            self.tell(RunEventName::Waiting, &json!({ "until": self.run.due_at }));
        }
        self.done()
    }

    fn finished(mut self, outcome: RunOutcome, now: Timestamp) -> RunDecision {
        // An agent that was asked to stop may fail on the way. The run is then cancelled, not
        // failed.
        let outcome = match outcome {
            RunOutcome::Failed(_) if self.run.cancel_requested => RunOutcome::Cancelled,
            other => other,
        };
        match outcome {
            RunOutcome::Completed(result) => {
                self.run.status = RunStatus::Completed;
                self.tell(RunEventName::Result, &json!({ "result": result }));
                self.run.result = Some(result);
            }
            RunOutcome::Failed(error) => {
                self.run.status = RunStatus::Failed;
                self.fail(error);
            }
            RunOutcome::Cancelled => {
                self.run.status = RunStatus::Cancelled;
                self.fail(RunError::new(RunErrorCode::Cancelled.as_str(), "the run was cancelled"));
            }
        }
        self.ended(now)
    }

    fn ended(mut self, now: Timestamp) -> RunDecision {
        self.run.node = None;
        self.run.due_at = None;
        self.run.questions.clear();
        self.run.ended_at = Some(now);
        self.done()
    }

    fn concluded(
        mut self,
        conclusion: ExecutionConclusion,
        now: Timestamp,
    ) -> Result<RunDecision, RunRefusal> {
        let ExecutionConclusion { ending, usage, total_cost_usd } = conclusion;
        let Some(execution) = &mut self.run.execution else {
            return Err(RunRefusal::NotNow(self.run.status));
        };
        (execution.usage, execution.total_cost_usd) = (usage, total_cost_usd);
        match ending {
            ExecutionOutcome::Result { data, error } => {
                self.tell(RunEventName::Result, &data);
                self.run.status =
                    if error.is_some() { RunStatus::Failed } else { RunStatus::Completed };
                self.run.result = Some(data);
                self.run.error = error;
            }
            ExecutionOutcome::Error { error, partial } => {
                self.run.result = partial;
                let is_cancelled = error.code == RunErrorCode::Cancelled.as_str();
                self.run.status =
                    if is_cancelled { RunStatus::Cancelled } else { RunStatus::Failed };
                self.fail(error);
            }
        }
        Ok(self.ended(now))
    }

    fn fail(&mut self, error: RunError) {
        self.tell(RunEventName::Error, &json!({ "code": error.code, "message": error.message }));
        self.run.error = Some(error);
    }

    fn cancel_requested(mut self) -> RunDecision {
        if !self.run.cancel_requested {
            self.run.cancel_requested = true;
            self.tell_of_agent(RunEventName::CancelRequested, &json!({}));
        }
        self.done()
    }

    /// Without a pause for the first losses. Then with a pause, so that a run that keeps losing its
    /// node does not block the others.
    fn requeued(mut self, now: Timestamp) -> RunDecision {
        self.run.losses = self.run.losses.saturating_add(1);
        let pause = match self.run.losses.saturating_sub(PROMPT_LOSSES) {
            0 => Duration::ZERO,
            many => LONGEST_PAUSE.min(Duration::from_secs(1 << many.min(6))),
        };
        self.run.status = RunStatus::Queued;
        self.run.node = None;
        self.run.due_at = Some(now + pause);
        self.tell_of_agent(RunEventName::NodeLost, &json!({}));
        self.done()
    }
}
