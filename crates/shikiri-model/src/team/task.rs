//! Tasks: work that is assigned to an agent.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Place;
use super::refusal::{Refusal, RefusalCode};
use crate::ids::{AgentId, AgentSessionId, ProjectId, TaskId, TenantId};
use crate::record::{Columns, Document};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
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
    /// Higher comes first.
    #[serde(default)]
    pub priority: i32,
    pub status: TaskStatus,
    /// The session that works on it, or did.
    #[serde(default)]
    pub session: Option<AgentSessionId>,
    #[serde(default)]
    pub result: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    Todo,
    InProgress,
    Blocked,
    Done,
}

impl TaskStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Todo => "todo",
            Self::InProgress => "in_progress",
            Self::Blocked => "blocked",
            Self::Done => "done",
        }
    }

    /// Whether somebody should work on it.
    pub fn is_waiting_for_work(self) -> bool {
        matches!(self, Self::Todo | Self::InProgress)
    }
}

impl Task {
    pub fn place(&self) -> Option<Place> {
        self.assignee.as_ref().map(|agent| Place::new(&self.project, agent))
    }

    /// A session sets out to work on it.
    pub fn take(&mut self, session: &AgentSessionId) {
        self.status = TaskStatus::InProgress;
        self.session = Some(session.clone());
    }

    /// Nobody will go on with it before a person has looked at it.
    pub fn block(&mut self, reason: &str) {
        self.status = TaskStatus::Blocked;
        self.result = Some(serde_json::json!({ "reason": reason }));
    }

    /// Its agent says what became of it. Saying the same again changes nothing.
    pub fn report(
        &mut self,
        by: &AgentId,
        status: TaskStatus,
        result: Option<Value>,
    ) -> Result<(), Refusal> {
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

/// Which of an agent's tasks it is given up for: what it had begun, and if it never came so far,
/// all that wait for it.
pub fn given_up(tasks: &[Task]) -> impl Iterator<Item = &Task> {
    let is_begun = |task: &Task| task.status == TaskStatus::InProgress;
    let has_begun = tasks.iter().any(is_begun);
    tasks.iter().filter(
        move |task| if has_begun { is_begun(task) } else { task.status.is_waiting_for_work() },
    )
}

/// Which of an agent's tasks a session takes up: its own first, then what was begun by a session
/// that is gone, then the most urgent, the oldest among equals.
pub fn next_task<'a>(
    tasks: &'a [Task],
    session: &AgentSessionId,
    is_live: impl Fn(&AgentSessionId) -> bool,
) -> Option<&'a Task> {
    let is_mine = |task: &&Task| task.session.as_ref() == Some(session);
    let is_left = |task: &&Task| task.session.as_ref().is_none_or(|session| !is_live(session));
    let begun = || tasks.iter().filter(|task| task.status == TaskStatus::InProgress);
    let todo = tasks.iter().filter(|task| task.status == TaskStatus::Todo);
    begun()
        .find(is_mine)
        .or_else(|| begun().find(is_left))
        // `min_by_key` takes the first of equals, and tasks come in the order they were made.
        .or_else(|| todo.min_by_key(|task| std::cmp::Reverse(task.priority)))
}

impl Document for Task {
    const KIND: &'static str = "task";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        let is_open = self.status.is_waiting_for_work();
        Columns {
            state: self.status.as_str().to_owned(),
            parent: Some(self.project.to_string()),
            owner: self.place().filter(|_| is_open).map(|place| place.key()),
            ..Columns::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, status: TaskStatus, session: Option<&str>, priority: i32) -> Task {
        Task {
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
        let ids =
            |tasks: &[Task]| given_up(tasks).map(|task| task.id.to_string()).collect::<Vec<_>>();
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
