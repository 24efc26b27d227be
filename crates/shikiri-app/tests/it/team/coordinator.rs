//! The coordinator with an engine of the test's own: what it is ordered to do, and what becomes of
//! runs that go wrong.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use shikiri_app::{App, AppOptions};
use shikiri_executions::execution::{
    Engine, EngineError, EngineRegistry, EngineSender, TurnRequest,
};
use shikiri_executions::servers::{ServerKind, ServerPatch};
use shikiri_model::execution::{EngineFinish, EngineMessage};
use shikiri_model::ids::{AgentId, MessageId, ProjectId, TenantId};
use shikiri_model::key::{KeyScope, SecretToken};
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::server::McpServerTransport;
use shikiri_model::team::{
    AgentKind, AgentRank, ProjectMember, SessionPurpose, SpawnPolicy, SpawnSlot, TaskStatus,
    TeamLimits,
};
use shikiri_runtime::RuntimeOptions;
use shikiri_runtime::run::WorkerNode;
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_store::store;
use shikiri_teams::{Coordinator, NewDialogue, NewTask, NewTeamAgent};
use shikiri_testkit::{until, until_within};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::world::permission;

const PATIENCE: Duration = Duration::from_secs(30);

/// Hands its orders to the test, and does as the test wants.
struct Stand {
    orders: mpsc::UnboundedSender<TurnRequest>,
    app: Arc<Mutex<Option<App>>>,
    whim: Whim,
}

#[derive(Clone, Copy, PartialEq)]
enum Whim {
    Fail,
    /// Does the tasks that there are.
    Work,
    /// Until it is stopped.
    Hang,
    /// Reads what has come, and ends.
    Read,
    /// Is sent what has come, and dies of it.
    Die,
    /// Writes to its partner before it reads.
    Write,
}

#[async_trait]
impl Engine for Stand {
    fn kind(&self) -> EngineKind {
        EngineKind::Offline
    }

    async fn check(
        &self,
        _: &Model,
        _: &std::collections::BTreeMap<String, String>,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    async fn run(
        &self,
        order: TurnRequest,
        told: EngineSender,
        stop: CancellationToken,
    ) -> Result<(), EngineError> {
        let token = token_of(&order);
        self.orders.send(order).unwrap();
        match self.whim {
            Whim::Fail => return Err(EngineError::new("as the test wants")),
            Whim::Hang => stop.cancelled().await,
            Whim::Read | Whim::Die | Whim::Write => {
                let app = self.app.lock().unwrap().clone().unwrap();
                let mut desk = app
                    .teams
                    .enter_session(&token, permission("get_pending_messages"))
                    .await
                    .unwrap();
                if self.whim == Whim::Write {
                    let is_first = desk.session.place.agent.as_str() == "a";
                    let partner = if is_first { "b" } else { "a" };
                    // A refusal is what the test waits for.
                    let _ = desk.send_message(partner, "どう？", None).await;
                }
                desk.pending(Duration::ZERO).await.unwrap();
                super::world::confirm(&mut desk).await;
                if self.whim == Whim::Die {
                    return Err(EngineError::new("as the test wants"));
                }
                let finish = EngineFinish { result: "済".to_owned(), ..EngineFinish::default() };
                told.send(EngineMessage::Finished(finish)).await;
            }
            Whim::Work => {
                let app = self.app.lock().unwrap().clone().unwrap();
                let mut desk =
                    app.teams.enter_session(&token, permission("get_next_action")).await.unwrap();
                let next = desk.next_action(Duration::ZERO).await.unwrap();
                let shikiri_teams::NextAction::Work(task) = next else { panic!("{next:?}") };
                let id = task.value.id.to_string();
                desk.report_completed(&id, TaskStatus::Done, None).await.unwrap();
            }
        }
        Ok(())
    }
}

fn token_of(order: &TurnRequest) -> SecretToken {
    let door = order.servers.iter().find(|server| server.is_own).unwrap();
    SecretToken::from_caller(door.headers["Authorization"].strip_prefix("Bearer ").unwrap())
}

struct Office {
    app: App,
    node: WorkerNode,
    coordinator: Coordinator,
    orders: mpsc::UnboundedReceiver<TurnRequest>,
    project: ProjectId,
    _folder: tempfile::TempDir,
}

impl Office {
    async fn open(whim: Whim, guard: Duration) -> Self {
        Self::open_with(whim, guard, guard * 5).await
    }

    async fn open_with(whim: Whim, guard: Duration, rest: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store =
            SqliteStore::open(&folder.path().join("state.db"), SqliteOptions::default()).unwrap();
        let team = TeamLimits { spawn_guard: guard, rest, ..TeamLimits::default() };
        let data = Some(folder.path().to_owned());
        let options = AppOptions {
            runtime: RuntimeOptions { data, ..RuntimeOptions::default() },
            team,
            ..AppOptions::default()
        };
        let (orders, given) = mpsc::unbounded_channel();
        let own: Arc<Mutex<Option<App>>> = Arc::default();
        let stand = Stand { orders, app: Arc::clone(&own), whim };
        let engines = EngineRegistry::new(vec![Arc::new(stand)]);
        let app = App::new(Arc::new(store), vec![], options).with_engines(engines);
        *own.lock().unwrap() = Some(app.clone());
        app.tenancy.ensure_local_tenant().await.unwrap();
        let node = app.start_worker();
        node.joined().await;
        let project: ProjectId = "p".parse().unwrap();
        app.teams.create_project(&local(), Some(project.clone()), None).await.unwrap();
        let agent = worker("a");
        app.teams.add_agent(&local(), &project, agent).await.unwrap();
        let coordinator =
            Coordinator::start(app.teams.clone(), "http://127.0.0.1:9/mcp".to_owned());
        Self { app, node, coordinator, orders: given, project, _folder: folder }
    }

    async fn assign(&self, title: &str) -> String {
        let new = NewTask {
            title: title.to_owned(),
            description: String::new(),
            assignee: Some("a".parse().unwrap()),
            parent_id: None,
            priority: 0,
        };
        let task = self.app.teams.create_task(&local(), &self.project, new).await.unwrap();
        task.value.id.to_string()
    }

    /// From a person.
    async fn write(&self, content: &str) -> MessageId {
        let person: AgentId = "person".parse().unwrap();
        let (kind, spawn) = (AgentKind::Human, SpawnPolicy::Never);
        let new = NewTeamAgent { kind, spawn, ..worker("person") };
        self.app.teams.add_agent(&local(), &self.project, new).await.unwrap();
        let to = "a".parse().unwrap();
        let posted =
            self.app.teams.post_message(&local(), &self.project, &person, &to, content).await;
        posted.unwrap().value.id
    }

    async fn order(&mut self) -> TurnRequest {
        tokio::time::timeout(PATIENCE, self.orders.recv()).await.unwrap().unwrap()
    }

    /// The only one.
    async fn seat(&self) -> SpawnSlot {
        use shikiri_model::record::{Document, RecordQuery};
        let (kind, tenant) = (SpawnSlot::KIND, Some(local()));
        let query = RecordQuery { kind, tenant, limit: 2, ..RecordQuery::default() };
        let found = self.app.runtime.store().list(query).await.unwrap();
        assert_eq!(found.len(), 1);
        store::decode::<SpawnSlot>(&found[0]).unwrap().value
    }

    /// Until the seat is as wanted.
    async fn seat_when(&self, wanted: impl Fn(&SpawnSlot) -> bool) -> SpawnSlot {
        until("the seat is as wanted", async || Some(self.seat().await).filter(&wanted)).await
    }

    async fn server(&self, name: &str, header: &str) {
        let patch = ServerPatch {
            name: Some(name.to_owned()),
            kind: Some(ServerKind::Http),
            url: Some("http://127.0.0.1:9/mcp".to_owned()),
            headers_template: Some([("Authorization".to_owned(), header.to_owned())].into()),
            allow_private: Some(true),
            ..ServerPatch::default()
        };
        self.app.executions.create_server(&KeyScope::Admin, &local(), patch).await.unwrap();
    }

    async fn close(self) {
        self.coordinator.leave().await;
        self.node.leave().await;
    }
}

fn worker(id: &str) -> NewTeamAgent {
    NewTeamAgent {
        id: id.parse().unwrap(),
        name: None,
        kind: AgentKind::Ai,
        rank: AgentRank::Worker,
        role: Some("片付ける".to_owned()),
        passkey: None,
        model_id: None,
        spawn: SpawnPolicy::Auto,
    }
}

fn local() -> TenantId {
    TenantId::local()
}

/// Each message starts the other agent, which answers before it has read it.
#[tokio::test(flavor = "multi_thread")]
async fn agents_that_write_before_they_read_come_to_an_end() {
    let office = Office::open(Whim::Write, Duration::from_secs(60)).await;
    office.app.teams.add_agent(&local(), &office.project, worker("b")).await.unwrap();
    office.write("どう思いますか").await;
    let messages = async || {
        let teams = &office.app.teams;
        let page = teams.list_team_messages(&local(), &office.project, None, None, 1_000).await;
        page.unwrap().0.into_iter().map(|message| message.value).collect::<Vec<_>>()
    };
    until_within(2 * PATIENCE, "a notice", async || {
        messages().await.iter().any(|message| message.is_notice)
    })
    .await;
    let is_idle = async || office.app.runtime.metrics().agents_at_work.get() == 0;
    until("nobody is at work", is_idle).await;
    let all = messages().await;
    let between = |from: &str| all.iter().filter(|message| message.from.as_str() == from).count();
    assert_eq!(between("a") + between("b"), 40);
    let mut told: Vec<_> = all.iter().filter(|one| one.is_notice).map(|one| &one.to).collect();
    told.sort();
    assert_eq!(told.iter().map(|agent| agent.as_str()).collect::<Vec<_>>(), ["a", "b", "person"]);
    office.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_told_who_it_is_and_gets_a_door_of_its_own() {
    let mut office = Office::open(Whim::Work, Duration::from_secs(60)).await;
    office.server("plain", "fixed").await;
    office.server("docs", "Bearer ${docs}").await;
    // A tenant's server has no claim to the name.
    office.server("shikiri", "other").await;
    office.assign("片付け").await;
    let order = office.order().await;
    for part in ["agent id a", "片付ける", "This is your task session", "get_next_action"] {
        assert!(order.prompt.contains(part), "{}", order.prompt);
    }
    let names: Vec<_> = order.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["plain", "shikiri"], "one that needs a token is left out");
    let url = "http://127.0.0.1:9/mcp".to_owned();
    assert_eq!(order.servers[1].transport, McpServerTransport::Http { url });
    assert_eq!(order.servers[1].allowed_tools, None);
    assert!(order.env["NO_PROXY"].contains("127.0.0.1"));
    let token = token_of(&order);
    assert!(!order.prompt.contains(token.reveal()));
    let seat = office.seat_when(|seat| seat.occupant.is_none()).await;
    assert_eq!((seat.purpose, seat.failures, seat.not_before), (SessionPurpose::Task, 0, None));
    let session = office.app.tenancy.session_of(&token).await.unwrap().unwrap();
    assert!(session.value.is_over, "a session ends with its run");
    // The next run goes on in the same conversation, with a token of its own.
    office.assign("もう一つ").await;
    assert_ne!(token_of(&office.order().await).reveal(), token.reveal());
    let again = office.seat_when(|seat| seat.occupant.is_none()).await;
    assert_eq!(again.conversation, seat.conversation);
    office.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_goes_wrong_is_started_five_times_and_then_left_alone() {
    // A rest that no machine is slow enough to see the end of.
    let guard = Duration::from_millis(320);
    let mut office = Office::open_with(Whim::Fail, guard, guard * 100).await;
    office.assign("片付け").await;
    let mut tokens = Vec::new();
    for _ in 0..5 {
        tokens.push(token_of(&office.order().await));
    }
    let seat = office.seat_when(|seat| seat.occupant.is_none() && seat.failures == 0).await;
    assert_eq!(seat.rests, 1);
    for token in tokens {
        assert!(office.app.tenancy.session_of(&token).await.unwrap().unwrap().value.is_over);
    }
    // What waits comes up again with each guard, and more comes.
    office.assign("もう一つ").await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(office.orders.try_recv().is_err(), "it is left alone");
    office.close().await;
}

/// Every run is paid for: they come to an end, and a person is told by the task.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_goes_wrong_after_every_rest_is_given_up() {
    let mut office = Office::open(Whim::Fail, Duration::from_millis(60)).await;
    let task = office.assign("片付け").await.parse().unwrap();
    for _ in 0..20 {
        office.order().await;
    }
    let found = until("the task is blocked", async || {
        let found = office.app.teams.task(&local(), &office.project, &task).await.unwrap().value;
        (found.status == TaskStatus::Blocked).then_some(found)
    })
    .await;
    assert!(found.result.unwrap()["reason"].as_str().unwrap().contains("again and again"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(office.orders.try_recv().is_err(), "for ever");
    // What comes now has one try.
    office.assign("もう一つ").await;
    office.order().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(office.orders.try_recv().is_err());
    office.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_an_agent_whose_spawns_failed_stays_unread_and_spawns_nothing() {
    let mut office = Office::open(Whim::Fail, Duration::from_millis(60)).await;
    let message = office.write("聞こえますか").await;
    for _ in 0..20 {
        office.order().await;
    }
    office.seat_when(|seat| seat.occupant.is_none() && seat.rests == 3).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(office.orders.try_recv().is_err(), "for ever");
    let found = office.app.teams.team_message(&local(), &office.project, &message).await.unwrap();
    assert_eq!(found.value.read_at, None);
    // The next session finds it.
    let place = ProjectMember::new(&office.project, &"a".parse().unwrap());
    let (_, token) =
        office.app.teams.open_session(&local(), &place, SessionPurpose::Chat).await.unwrap();
    let mut desk =
        office.app.teams.enter_session(&token, permission("get_pending_messages")).await.unwrap();
    assert_eq!(desk.pending(Duration::ZERO).await.unwrap().pending_messages.len(), 1);
    office.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_read_by_a_completed_run_spawns_nothing_again() {
    let mut office = Office::open(Whim::Read, Duration::from_secs(2)).await;
    let message = office.write("お知らせ").await;
    office.order().await;
    let seat = office.seat_when(|seat| seat.occupant.is_none()).await;
    assert_eq!((seat.failures, seat.not_before), (0, None));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(office.orders.try_recv().is_err(), "it is started again for what it has read");
    let found = office.app.teams.team_message(&local(), &office.project, &message).await.unwrap();
    assert!(found.value.read_at.is_some());
    office.close().await;
}

/// Row 2.16.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_a_run_died_with_is_told_to_the_next_session_and_one_that_it_read_is_not() {
    for (whim, told) in [(Whim::Read, vec![]), (Whim::Die, vec![true])] {
        let mut office = Office::open(whim, Duration::from_secs(60)).await;
        let partner = NewTeamAgent { spawn: SpawnPolicy::Never, ..worker("b") };
        office.app.teams.add_agent(&local(), &office.project, partner).await.unwrap();
        let place = ProjectMember::new(&office.project, &"a".parse().unwrap());
        let (own, token) =
            office.app.teams.open_session(&local(), &place, SessionPurpose::Chat).await.unwrap();
        let desk =
            office.app.teams.enter_session(&token, permission("start_conversation")).await.unwrap();
        let (target, initial_message) = ("b".to_owned(), "りんご".to_owned());
        let wanted = NewDialogue { target, initial_message, ..NewDialogue::default() };
        let talk = desk.start_conversation(&wanted).await.unwrap().conversation_id;
        desk.end_conversation(talk.as_str(), None).await.unwrap();
        office.app.teams.end_session(&local(), &own.id).await.unwrap();
        // The end starts no agent; a message does.
        office.write("お知らせ").await;
        office.order().await;
        office.seat_when(|seat| seat.occupant.is_none()).await;
        office.coordinator.leave().await;
        let (_, token) =
            office.app.teams.open_session(&local(), &place, SessionPurpose::Chat).await.unwrap();
        let mut desk = office
            .app
            .teams
            .enter_session(&token, permission("get_pending_messages"))
            .await
            .unwrap();
        let ended = desk.pending(Duration::ZERO).await.unwrap().ended_conversations;
        assert_eq!(ended.iter().map(|one| one.told_before).collect::<Vec<_>>(), told);
        office.node.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_nothing_is_stopped_and_a_leader_that_leaves_stops_what_it_started() {
    let guard = Duration::from_secs(2);
    let mut office = Office::open(Whim::Hang, guard).await;
    office.assign("片付け").await;
    let silent = token_of(&office.order().await);
    let second = token_of(&office.order().await);
    assert!(office.app.tenancy.session_of(&silent).await.unwrap().unwrap().value.is_over);
    // This one makes itself heard, so it may go on.
    office.app.teams.enter_session(&second, permission("get_next_action")).await.unwrap();
    tokio::time::sleep(guard * 3 / 2).await;
    let seat = office.seat().await;
    let run = seat.occupant.unwrap().execution.unwrap();
    let status = office.app.executions.execution(&local(), &run).await.unwrap().value.status;
    assert!(!status.is_terminal(), "{status:?}");
    assert!(office.orders.try_recv().is_err(), "one at a time");
    office.coordinator.leave().await;
    let mut watch = office
        .app
        .runtime
        .watch(
            &local(),
            office.app.executions.execution(&local(), &run).await.unwrap().value.stream(),
            0,
        )
        .await
        .unwrap();
    let ended = async { while watch.next().await.unwrap().is_some() {} };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    // The next leader finds the seat, sees that the run is over, and starts another.
    let next = Coordinator::start(office.app.teams.clone(), "http://127.0.0.1:9/mcp".to_owned());
    let order = tokio::time::timeout(PATIENCE, office.orders.recv()).await.unwrap().unwrap();
    assert_ne!(token_of(&order).reveal(), second.reveal());
    assert!(office.app.tenancy.session_of(&second).await.unwrap().unwrap().value.is_over);
    next.leave().await;
    office.node.leave().await;
}
