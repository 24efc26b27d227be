//! What teams keep, as SQL shows it to those who look from outside.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::ids::TenantId;
use shikiri_model::key::SecretToken;
use shikiri_model::record::{Document, ExpectedVersion, RecordChange};
use shikiri_model::team::{
    AgentSession, Delegation, DelegationStatus, ProjectMember as TeamPlace, SessionPurpose,
    TeamBudget, TeamLimits,
};
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, Store};
use sqlx::Row as _;

use crate::world::{StorePlace, World, connect, on_both};

const DELEGATIONS: &str = "SELECT id, agent_id, project_id, target_agent_id, purpose, context, \
                           status, created_at, processed_at, result, tenant \
                           FROM chat_delegations ORDER BY id";
const SESSIONS: &str = "SELECT id, agent_id, project_id, purpose, expires_at, seen_at, tenant \
                        FROM agent_sessions ORDER BY id";

/// When everything happens here.
const START: &str = "2026-11-15T20:00:00.005Z";

fn delegation(id: &str, now: Timestamp) -> Delegation {
    Delegation {
        id: id.parse().unwrap(),
        tenant: TenantId::local(),
        project: "p".parse().unwrap(),
        agent: "mia".parse().unwrap(),
        target: "ben".parse().unwrap(),
        purpose: "しりとり \u{0} \"6\"".to_owned(),
        context: None,
        status: DelegationStatus::Pending,
        task: None,
        session: "ses_1".parse().unwrap(),
        budget: TeamBudget::fresh(&TeamLimits::default(), now),
        cause: None,
        attempts: 0,
        claim: None,
        dialogue: None,
        processed_at: None,
        result: None,
        reported: None,
    }
}

async fn add(store: &dyn Store, value: &impl Document) {
    let put = RecordChange::put(value, ExpectedVersion::New).unwrap();
    store.commit(Commit::new().record(put)).await.unwrap();
}

/// The rows as lists of texts.
async fn rows(world: &World, sql: &'static str) -> Vec<Vec<Option<String>>> {
    match world.place() {
        StorePlace::File(path) => {
            let file =
                shikiri_sqlite::SqliteDatabase::open_reader(&path, &Default::default()).unwrap();
            let mut query = file.prepare(sql).unwrap();
            let columns = query.column_count();
            let row =
                |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
            query.query_map([], row).unwrap().map(Result::unwrap).collect()
        }
        StorePlace::Database(url) => {
            let rows = sqlx::query(sql).fetch_all(&mut connect(&url).await).await.unwrap();
            let row = |row: sqlx::postgres::PgRow| (0..row.len()).map(|n| row.get(n)).collect();
            rows.into_iter().map(row).collect()
        }
    }
}

#[tokio::test]
async fn delegations_and_sessions_have_their_tables() {
    on_both(async |world| {
        let store = world.open().await;
        world.clock.advance(Duration::from_millis(5));
        let now = world.now();
        let mut done = delegation("dlg_1", now);
        done.context = Some("6 rounds".to_owned());
        done.fail("no chat session took it on in time", now);
        add(&*store, &done).await;
        add(&*store, &delegation("dlg_2", now)).await;
        let place = TeamPlace { project: "p".parse().unwrap(), agent: "mia".parse().unwrap() };
        let hash = SecretToken::from_caller("sst_local.secret").hash();
        let limits = TeamLimits::default();
        let (id, tenant) = ("ses_1".parse().unwrap(), TenantId::local());
        let session = AgentSession::start(
            id,
            tenant,
            place,
            SessionPurpose::Task,
            hash.clone(),
            &limits,
            now,
        );
        add(&*store, &session).await;

        let found = rows(&world, DELEGATIONS).await;
        let text = |row: usize, column: usize| found[row][column].as_deref();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0][..4], ["dlg_1", "mia", "p", "ben"].map(|word| Some(word.to_owned())));
        assert!(text(0, 4).unwrap().starts_with("しりとり "), "{found:?}");
        assert_eq!((text(0, 5), text(0, 6)), (Some("6 rounds"), Some("failed")));
        assert_eq!((text(0, 7), text(0, 8)), (Some(START), Some(START)));
        let result: Value = serde_json::from_str(text(0, 9).unwrap()).unwrap();
        assert_eq!(result, json!({ "reason": "no chat session took it on in time" }));
        assert_eq!(text(0, 10), Some("local"));
        assert_eq!((text(1, 0), text(1, 6)), (Some("dlg_2"), Some("pending")));
        assert_eq!((text(1, 5), text(1, 8), text(1, 9)), (None, None, None));

        let found = rows(&world, SESSIONS).await;
        let expected = ["ses_1", "mia", "p", "task", "2026-11-15T21:00:00.005Z", START, "local"];
        assert_eq!(found, [expected.map(|word| Some(word.to_owned())).to_vec()]);
        let all = rows(&world, "SELECT * FROM agent_sessions").await;
        assert!(!format!("{all:?}").contains(hash.as_str()));
    })
    .await;
}
