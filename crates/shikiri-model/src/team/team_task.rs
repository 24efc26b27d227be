//! Tasks: work that is assigned to an agent.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ProjectMember;
use super::team_cause::{TeamCause, TeamCauseKind};
use super::team_refusal::{RefusalCode, TeamRefusal};
use crate::ids::{AgentId, AgentSessionId, ProjectId, TaskId, TenantId};
use crate::macros::{document, text_enum};
use crate::record::RecordColumns;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamTask {
    pub id: TaskId,
    pub tenant: TenantId,
    pub project: ProjectId,
    pub title: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub assignee: Option<AgentId>,
    #[serde(default)]
    pub parent_id: Option<TaskId>,
    /// Higher values come first.
    #[serde(default)]
    pub priority: i32,
    pub status: TaskStatus,
    /// The session that works on the task or last did.
    #[serde(default)]
    pub session: Option<AgentSessionId>,
    #[serde(default)]
    pub result: Option<Value>,
    /// When a person last gave it to an agent, if that was not when it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_at: Option<Timestamp>,
}

text_enum! {
    pub enum TaskStatus {
        Todo = "todo",
        InProgress = "in_progress",
        Blocked = "blocked",
        Done = "done",
    }
}

impl TaskStatus {
    /// Whether a session should work on it.
    pub fn is_waiting_for_work(self) -> bool {
        matches!(self, Self::Todo | Self::InProgress)
    }
}

impl TeamTask {
    pub fn place(&self) -> Option<ProjectMember> {
        self.assignee.as_ref().map(|agent| ProjectMember::new(&self.project, agent))
    }

    /// The task as the cause of what follows from it. Each time that a person gives it to an agent
    /// is a cause of its own.
    pub fn cause(&self, created_at: Timestamp) -> TeamCause {
        TeamCause::new(TeamCauseKind::Task, &self.id, self.given_at.unwrap_or(created_at))
    }

    /// Assigns the task to a session.
    pub fn take(&mut self, session: &AgentSessionId) {
        self.status = TaskStatus::InProgress;
        self.session = Some(session.clone());
    }

    /// Stops work on the task until a person has looked at it.
    pub fn block(&mut self, reason: &str) {
        self.status = TaskStatus::Blocked;
        self.result = Some(serde_json::json!({ "reason": reason }));
    }

    /// Records the agent's report. Repeating a report changes nothing.
    pub fn report(
        &mut self,
        by: &AgentId,
        status: TaskStatus,
        result: Option<Value>,
    ) -> Result<(), TeamRefusal> {
        if self.assignee.as_ref() != Some(by) {
            let message = format!("task {} is not assigned to you", self.id);
            return Err(RefusalCode::NoTask.because(message));
        }
        if !matches!(status, TaskStatus::Done | TaskStatus::Blocked) {
            let message = "status must be done or blocked";
            return Err(RefusalCode::InvalidArgument.because(message));
        }
        if self.status == TaskStatus::Done {
            if status == TaskStatus::Done {
                return Ok(());
            }
            let message = format!("task {} is done already", self.id);
            return Err(RefusalCode::InvalidArgument.because(message));
        }
        self.status = status;
        if result.is_some() {
            self.result = result;
        }
        Ok(())
    }
}

/// The tasks to give up when an agent is given up: those it had begun, or all open ones if it began
/// none.
pub fn tasks_to_abandon(tasks: &[TeamTask]) -> impl Iterator<Item = &TeamTask> {
    let is_begun = |task: &TeamTask| task.status == TaskStatus::InProgress;
    let has_begun = tasks.iter().any(is_begun);
    tasks.iter().filter(
        move |task| if has_begun { is_begun(task) } else { task.status.is_waiting_for_work() },
    )
}

/// The next task for a session: its own first, then one begun by a session that is gone, then the
/// highest priority, oldest first.
pub fn next_task<'a>(
    tasks: &'a [TeamTask],
    session: &AgentSessionId,
    is_live: impl Fn(&AgentSessionId) -> bool,
) -> Option<&'a TeamTask> {
    let is_mine = |task: &&TeamTask| task.session.as_ref() == Some(session);
    let is_left = |task: &&TeamTask| task.session.as_ref().is_none_or(|session| !is_live(session));
    let begun = || tasks.iter().filter(|task| task.status == TaskStatus::InProgress);
    let todo = tasks.iter().filter(|task| task.status == TaskStatus::Todo);
    begun()
        .find(is_mine)
        .or_else(|| begun().find(is_left))
        // `min_by_key` returns the first minimum, and tasks are in creation order.
        .or_else(|| todo.min_by_key(|task| std::cmp::Reverse(task.priority)))
}

document!(TeamTask, "task", tenant, id, |task| {
    let is_open = task.status.is_waiting_for_work();
    RecordColumns {
        state: task.status.as_str().to_owned(),
        parent: Some(task.project.to_string()),
        owner: task.place().filter(|_| is_open).map(|place| place.key()),
        ..RecordColumns::default()
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, status: TaskStatus, session: Option<&str>, priority: i32) -> TeamTask {
        TeamTask {
            id: id.parse().unwrap(),
            tenant: TenantId::local(),
            project: "p".parse().unwrap(),
            title: "しりとり".to_owned(),
            description: String::new(),
            assignee: Some("a".parse().unwrap()),
            parent_id: None,
            priority,
            status,
            session: session.map(|id| id.parse().unwrap()),
            result: None,
            given_at: None,
        }
    }

    #[test]
    fn own_work_first_then_what_was_left_then_the_most_urgent() {
        use TaskStatus::{Done, InProgress, Todo};
        let me = "me".parse().unwrap();
        let mut tasks = vec![
            task("low", Todo, None, 0),
            task("urgent", Todo, None, 5),
            task("urgent-too", Todo, None, 5),
            task("held", InProgress, Some("living"), 9),
            task("left", InProgress, Some("gone"), 0),
            task("mine", InProgress, Some("me"), 0),
            task("done", Done, Some("me"), 99),
        ];
        let mut order = Vec::new();
        while let Some(next) = next_task(&tasks, &me, |id| id.as_str() == "living") {
            let id = next.id.clone();
            tasks.retain(|task| task.id != id);
            order.push(id.to_string());
        }
        assert_eq!(order, ["mine", "left", "urgent", "urgent-too", "low"]);
    }

    #[test]
    fn an_agent_is_given_up_for_what_it_had_begun_or_else_for_all() {
        use TaskStatus::{Blocked, Done, InProgress, Todo};
        let ids = |tasks: &[TeamTask]| {
            tasks_to_abandon(tasks).map(|task| task.id.to_string()).collect::<Vec<_>>()
        };
        let mut tasks = vec![
            task("a", Todo, None, 0),
            task("b", InProgress, None, 0),
            task("c", Done, None, 0),
        ];
        assert_eq!(ids(&tasks), ["b"]);
        tasks[1].block("it went wrong");
        assert_eq!(tasks[1].status, Blocked);
        assert_eq!(ids(&tasks), ["a"]);
    }

    #[test]
    fn only_its_agent_reports_and_done_is_done() {
        let (me, other) = ("a".parse().unwrap(), "b".parse().unwrap());
        let mut one = task("t", TaskStatus::InProgress, None, 0);
        let refused = one.report(&other, TaskStatus::Done, None).unwrap_err();
        assert_eq!(refused.code, RefusalCode::NoTask);
        assert!(one.report(&me, TaskStatus::Todo, None).is_err());
        one.report(&me, TaskStatus::Blocked, None).unwrap();
        one.report(&me, TaskStatus::Done, Some("ok".into())).unwrap();
        one.report(&me, TaskStatus::Done, Some("again".into())).unwrap();
        assert_eq!(one.result, Some("ok".into()));
        assert!(one.report(&me, TaskStatus::Blocked, None).is_err());
    }
}
