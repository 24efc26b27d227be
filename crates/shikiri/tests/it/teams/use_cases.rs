//! The use cases of teams, each agent with an MCP client of its own, against the real server.

use serde_json::{Value, json};
use shikiri_testkit::{Builder, TestApp, have_postgres, until};

use super::world::{Player, Project, id_of};
use crate::PROGRAM;

/// Words of a shiritori, the first player's and the second's in turn.
const WORDS: [&str; 12] = [
    "りんご",
    "ごりら",
    "らっぱ",
    "ぱんだ",
    "だるま",
    "まくら",
    "らくだ",
    "だちょう",
    "うま",
    "まり",
    "りす",
    "すいか",
];

async fn project(app: &TestApp, id: &str) -> Project {
    Project::start(&app.local(), id, &["ann", "ben"]).await
}

/// Rows 2.2, 2.8, 2.11, 2.12, 2.13, 2.18 (UC012): a message by delegation, stored for both sides,
/// unread for whom it is for.
#[tokio::test(flavor = "multi_thread")]
async fn uc012_a_task_has_a_message_sent() {
    uc012(&project(&TestApp::new(PROGRAM).start().await, "uc012").await).await;
}

/// Rows 2.3, 2.5, 2.15, 2.17 (UC016): five rounds are ten messages in one dialogue.
#[tokio::test(flavor = "multi_thread")]
async fn uc016_two_agents_talk_in_turn() {
    uc016(&project(&TestApp::new(PROGRAM).start().await, "uc016").await).await;
}

/// Row 2.17 (UC016): the participant may end it too.
#[tokio::test(flavor = "multi_thread")]
async fn uc016_the_participant_ends_the_talk() {
    uc016_participant(&project(&TestApp::new(PROGRAM).start().await, "uc016p").await).await;
}

/// Rows 2.16, 2.17 (UC016): a partner that does not come, or falls silent, does not hold anybody.
#[tokio::test(flavor = "multi_thread")]
async fn uc016_the_time_ends_a_talk_that_stands_still() {
    let app = hurried(TestApp::new(PROGRAM)).start().await;
    uc016_timeout(&project(&app, "uc016t").await).await;
}

/// Row 2.17 (UC016-B): a person asks the manager, who asks the worker and reports back.
#[tokio::test(flavor = "multi_thread")]
async fn uc016b_the_manager_asks_the_worker_and_reports_to_the_person() {
    uc016b(&project(&TestApp::new(PROGRAM).start().await, "uc016b").await).await;
}

/// Rows 2.1, 2.2, 2.4, 2.7, 2.8, 2.9, 2.10, 2.11, 2.12, 2.14, 2.15, 2.16, 2.18 (UC020): a task's
/// six rounds of shiritori are twelve messages, and everything after them is done.
#[tokio::test(flavor = "multi_thread")]
async fn uc020_a_task_has_six_rounds_of_shiritori_played() {
    uc020(&project(&TestApp::new(PROGRAM).start().await, "uc020").await).await;
}

/// Rows 2.3, 2.6, 2.20: what task sessions once did by themselves is refused, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_session_that_talks_itself_is_sent_to_its_chat_session() {
    old_ways(&project(&TestApp::new(PROGRAM).start().await, "old").await).await;
}

/// Rows 2.1 to 2.18 and 2.20: the same stories on the other database.
#[tokio::test(flavor = "multi_thread")]
async fn the_use_cases_on_postgresql() {
    if !have_postgres("the use cases of teams") {
        return;
    }
    let app = TestApp::new(PROGRAM).postgres().start().await;
    uc012(&project(&app, "uc012").await).await;
    uc016(&project(&app, "uc016").await).await;
    uc016_participant(&project(&app, "uc016p").await).await;
    uc016b(&project(&app, "uc016b").await).await;
    uc020(&project(&app, "uc020").await).await;
    old_ways(&project(&app, "old").await).await;
    let app = hurried(TestApp::new(PROGRAM).postgres()).start().await;
    uc016_timeout(&project(&app, "uc016t").await).await;
}

fn hurried(builder: Builder) -> Builder {
    let limits = ["SHIKIRI_DIALOGUE_PENDING_SECONDS", "SHIKIRI_DIALOGUE_IDLE_SECONDS"];
    limits.iter().fold(builder, |builder, limit| builder.env(limit, "5"))
}

async fn uc012(project: &Project) {
    let task = project.task("ann", "Tell ben that the build is green").await;
    let work = project.login("ann", "task").await;
    assert_eq!(work.next_action().await["task"]["task_id"], task);
    let delegated = delegate(project, &work, "Tell ben: the build is green").await;
    assert_eq!(work.call("get_next_action", json!({})).await["action"], "wait_for_delegation");

    let chat = project.login("ann", "chat").await;
    let taken = chat.next("pending_delegations").await;
    assert_eq!(taken["delegation_id"], delegated);
    let ben = project.agent("ben");
    let sent = json!({
        "target_agent_id": ben, "content": "The build is green", "delegation_id": delegated,
    });
    let message = id_of(&chat.call("send_message", sent).await, "message_id");

    let told = work.next_action().await;
    assert_eq!(
        (&told["action"], &told["status"]),
        (&json!("delegation_result"), &json!("completed"))
    );
    assert_eq!(told["result"]["message_id"], message);
    let stored = project.list("messages").await;
    let [stored] = &stored[..] else { panic!("{stored:?}") };
    assert_eq!(stored["from_agent_id"], project.agent("ann"));
    assert_eq!(
        (&stored["to_agent_id"], &stored["content"]),
        (&json!(ben), &json!("The build is green"))
    );
    assert_eq!(stored["read_at"], Value::Null, "it is not read yet");
    let done = work.call("report_completed", json!({ "task_id": task, "result": "told" })).await;
    assert_eq!(done["task"]["status"], "done");

    let partner = project.login("ben", "chat").await;
    assert_eq!(partner.next("pending_messages").await["message_id"], message);
    assert!(project.list("messages").await[0]["read_at"].is_string(), "now it is read");
    let again = partner.call("get_pending_messages", json!({})).await;
    assert_eq!(again["pending_messages"], json!([]), "and comes once");
}

async fn uc016(project: &Project) {
    let (ann, ben) = both_chat(project).await;
    let dialogue = start(project, &ann, json!({ "max_turns": 40 })).await;
    play(&ann, &ben, &dialogue, &WORDS[..10]).await;
    let ended = ann.call("end_conversation", json!({ "conversation_id": dialogue })).await;
    assert_eq!(
        (&ended["state"], &ended["end_reason"]),
        (&json!("ended"), &json!("initiator_ended"))
    );
    both_are_told_once(&ann, &ben, &dialogue, "initiator_ended").await;
    the_transcript_is(project, &dialogue, &WORDS[..10]).await;
    assert_eq!(project.list("dialogues").await.len(), 1, "one dialogue for all of it");
}

async fn uc016_participant(project: &Project) {
    let (ann, ben) = both_chat(project).await;
    let dialogue = start(project, &ann, json!({})).await;
    ben.next("invitations").await;
    let end = json!({ "conversation_id": dialogue, "reason": "I have to go" });
    // It is its turn; it need not speak.
    let ended = ben.call("end_conversation", end).await;
    assert_eq!(ended["end_reason"], "participant_ended");
    both_are_told_once(&ann, &ben, &dialogue, "participant_ended").await;
    let say = json!({ "conversation_id": dialogue, "content": "ごりら" });
    assert_eq!(ben.refused("respond_conversation_message", say).await, "conversation_ended");
}

async fn uc016_timeout(project: &Project) {
    let (ann, ben) = both_chat(project).await;
    // No session comes.
    let first = start(project, &ann, json!({})).await;
    assert_eq!(ended(&ann).await, (first.clone(), "timeout".to_owned()));
    assert_eq!(ended(&ben).await, (first, "timeout".to_owned()));
    // The partner comes, and says nothing.
    let second = start(project, &ann, json!({})).await;
    assert_eq!(ben.next("invitations").await["conversation_id"], second);
    both_are_told_once(&ann, &ben, &second, "timeout").await;
    let say = json!({ "conversation_id": second, "content": "late" });
    assert_eq!(ben.refused("send_conversation_message", say).await, "conversation_ended");
}

async fn uc016b(project: &Project) {
    project.write("hana", "mia", "Ask ann how far the report is").await;
    let manager = project.login("mia", "chat").await;
    let asked = manager.next("pending_messages").await;
    assert_eq!(asked["from_agent_id"], project.agent("hana"));
    let opening = json!({
        "target_agent_id": project.agent("ann"), "initial_message": "How far is the report?",
    });
    let dialogue = id_of(&manager.call("start_conversation", opening).await, "conversation_id");
    let worker = project.login("ann", "chat").await;
    let invitation = worker.next("invitations").await;
    assert_eq!(invitation["initial_message"], "How far is the report?");
    say(&worker, "respond_conversation_message", &dialogue, "Half").await;
    assert_eq!(manager.next("pending_messages").await["content"], "Half");
    manager.call("end_conversation", json!({ "conversation_id": dialogue })).await;
    both_are_told_once(&manager, &worker, &dialogue, "initiator_ended").await;
    let report = json!({ "message_id": asked["message_id"], "content": "ann is half through" });
    let reply = manager.call("respond_chat", report).await;

    let messages = project.list("messages").await;
    let [_, back] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(back["id"], reply["message_id"]);
    assert_eq!(back["to_agent_id"], project.agent("hana"));
    assert_eq!(back["content"], "ann is half through");
    // A person may log in and read it, as through any other door.
    let person = project.login("hana", "chat").await;
    assert_eq!(person.next("pending_messages").await["message_id"], reply["message_id"]);
}

async fn uc020(project: &Project) {
    let task = project.task("ann", "6往復しりとりをしてほしい。最初は「りんご」で。").await;
    assert_eq!(project.task_status(&task).await, "todo");
    // No reason is given: a task waits.
    let work = project.login_through(&project.tenant.client, "ann", None).await;
    let action = work.next_action().await;
    assert_eq!((&action["action"], &action["task"]["id"]), (&json!("work"), &json!(task)));
    assert_eq!(project.task_status(&task).await, "in_progress");
    let delegated = delegate(project, &work, "6往復しりとり。最初は「りんご」").await;
    assert_eq!(status_of(&work, &delegated).await, "pending");
    // It waits while the others play.
    let told = tokio::spawn({
        let work = work.clone();
        async move { until_result(&work).await }
    });

    let (ann, ben) = both_chat(project).await;
    let taken = ann.next("pending_delegations").await;
    assert_eq!(taken["purpose"], "6往復しりとり。最初は「りんご」");
    assert_eq!(taken["target_agent_id"], project.agent("ben"));
    assert_eq!(taken["context"], "ひらがなで");
    assert_eq!(status_of(&ann, &delegated).await, "processing");
    let more = json!({ "delegation_id": delegated, "purpose": "しりとり", "max_turns": 20 });
    let dialogue = start(project, &ann, more).await;
    play(&ann, &ben, &dialogue, &WORDS).await;
    ann.call("end_conversation", json!({ "conversation_id": dialogue })).await;
    both_are_told_once(&ann, &ben, &dialogue, "initiator_ended").await;

    let told = told.await.expect("an outcome");
    assert_eq!((&told["delegation_id"], &told["status"]), (&json!(delegated), &json!("completed")));
    assert_eq!(told["result"]["conversation_id"], dialogue);
    assert_eq!(told["result"]["end_reason"], "initiator_ended");
    assert_eq!(contents(&told["messages"]), WORDS);
    assert_eq!(contents(&told["result"]["messages"]), WORDS);
    the_transcript_is(project, &dialogue, &WORDS).await;
    let report = json!({ "delegation_id": delegated, "status": "completed", "result": "12語" });
    let reported = ann.call("report_delegation_completed", report).await;
    assert_eq!(reported["delegation"]["result"]["report"], "12語");
    let done = work.call("report_completed", json!({ "task_id": task, "result": "done" })).await;
    assert_eq!(done["task"]["status"], "done");
    assert_eq!(project.task_status(&task).await, "done");
    assert_eq!(work.call("get_next_action", json!({})).await["action"], "none");
}

async fn old_ways(project: &Project) {
    let task = project.task("ann", "Play shiritori with ben").await;
    let work = project.login("ann", "task").await;
    assert_eq!(work.next_action().await["task"]["id"], task);
    let before = project.state().await;
    let ben = project.agent("ben");
    let start = json!({ "target_agent_id": ben, "initial_message": "りんご" });
    assert_eq!(work.refused("start_conversation", start).await, "chatSessionRequired");
    let send = json!({ "target_agent_id": ben, "content": "りんご" });
    assert_eq!(work.refused("send_message", send).await, "chatSessionRequired");
    assert_eq!(project.state().await, before);
    // What it is told to do instead works, and the task is where it was.
    delegate(project, &work, "Play shiritori with ben").await;
    assert_eq!(project.task_status(&task).await, "in_progress");
}

async fn both_chat(project: &Project) -> (Player, Player) {
    (project.login("ann", "chat").await, project.login("ben", "chat").await)
}

/// Ann's task session asks for a talk with ben; the delegation's id.
async fn delegate(project: &Project, work: &Player, purpose: &str) -> String {
    let ben = project.agent("ben");
    let wanted = json!({ "target_agent_id": ben, "purpose": purpose, "context": "ひらがなで" });
    let delegated = work.call("delegate_to_chat_session", wanted).await;
    assert_eq!(delegated["success"], true);
    assert!(delegated["message"].is_string());
    let id = id_of(&delegated, "delegation_id");
    assert!(id.starts_with("dlg_"), "{id}");
    let shown = work.call("get_delegation", json!({ "delegation_id": id })).await;
    let shown = &shown["delegation"];
    assert_eq!(shown["agent_id"], project.agent("ann"));
    assert_eq!(shown["target_agent_id"], ben);
    assert_eq!((&shown["purpose"], &shown["context"]), (&json!(purpose), &json!("ひらがなで")));
    assert_eq!((&shown["status"], &shown["attempts"]), (&json!("pending"), &json!(0)));
    assert!(shown["created_at"].is_string() && shown["processed_at"].is_null());
    assert_eq!(shown["result"], Value::Null);
    id
}

async fn status_of(player: &Player, delegation: &str) -> Value {
    let id = json!({ "delegation_id": delegation });
    player.call("get_delegation", id).await["delegation"]["status"].clone()
}

/// Waits for the outcome of a delegation, as a task session does.
async fn until_result(work: &Player) -> Value {
    loop {
        let action = work.next_action().await;
        match action["action"].as_str() {
            Some("wait_for_delegation") => {}
            Some("delegation_result") => return action,
            _ => panic!("{action}"),
        }
    }
}

/// Ann speaks to ben; the dialogue's id.
async fn start(project: &Project, ann: &Player, mut more: Value) -> String {
    more["target_agent_id"] = json!(project.agent("ben"));
    more["initial_message"] = json!(WORDS[0]);
    let started = ann.call("start_conversation", more).await;
    assert_eq!((&started["state"], &started["your_turn"]), (&json!("pending"), &json!(false)));
    id_of(&started, "conversation_id")
}

/// What follows the first word, which has been said. Each side hears of the other's word by
/// waiting for it.
async fn play(ann: &Player, ben: &Player, dialogue: &str, words: &[&str]) {
    let invitation = ben.next("invitations").await;
    assert_eq!(invitation["conversation_id"], dialogue);
    assert_eq!(invitation["initial_message"], words[0]);
    for (at, word) in words.iter().enumerate().skip(1) {
        let (speaker, listener, tool) = if at % 2 == 1 {
            (ben, ann, "respond_conversation_message")
        } else {
            (ann, ben, "send_conversation_message")
        };
        say(speaker, tool, dialogue, word).await;
        let heard = listener.next("pending_messages").await;
        assert_eq!(
            (&heard["content"], &heard["conversation_id"]),
            (&json!(word), &json!(dialogue))
        );
    }
}

async fn say(speaker: &Player, tool: &str, dialogue: &str, word: &str) {
    let said = json!({ "conversation_id": dialogue, "content": word });
    let said = speaker.call(tool, said).await;
    assert_eq!(said["state"], "active");
    assert!(said["message_id"].is_string() && said["turns_left"].is_u64(), "{said}");
}

/// The next end that a side hears of.
async fn ended(player: &Player) -> (String, String) {
    let mut told = Vec::new();
    until("it is told of an end", async || {
        let pending = player.pending().await;
        told.extend(pending["ended_conversations"].as_array().expect("a list").clone());
        !told.is_empty()
    })
    .await;
    let [end] = &told[..] else { panic!("{told:?}") };
    (id_of(end, "conversation_id"), id_of(end, "reason"))
}

async fn both_are_told_once(one: &Player, other: &Player, dialogue: &str, reason: &str) {
    for side in [one, other] {
        assert_eq!(ended(side).await, (dialogue.to_owned(), reason.to_owned()));
        let again = side.call("get_pending_messages", json!({})).await;
        assert_eq!(again["ended_conversations"], json!([]));
        let read = json!({ "conversation_id": dialogue });
        let read = side.call("get_conversation_messages", read).await;
        assert_eq!((&read["state"], &read["end_reason"]), (&json!("ended"), &json!(reason)));
    }
}

/// Strictly in turn, the initiator first.
async fn the_transcript_is(project: &Project, dialogue: &str, words: &[&str]) {
    let lines = project.list(&format!("dialogues/{dialogue}/messages")).await;
    let lines = json!(lines);
    assert_eq!(contents(&lines), words);
    let speakers = [project.agent("ann"), project.agent("ben")];
    for (at, line) in lines.as_array().expect("lines").iter().enumerate() {
        assert_eq!(line["from_agent_id"], speakers[at % 2], "{line}");
    }
}

fn contents(messages: &Value) -> Vec<String> {
    let messages = messages.as_array().expect("messages");
    messages.iter().map(|message| id_of(message, "content")).collect()
}
