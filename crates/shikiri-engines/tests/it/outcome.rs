//! What an engine told, and what became of it.

use std::collections::BTreeMap;

use serde_json::Value;
use shikiri_executions::execution::EngineError;
use shikiri_model::execution::{
    EngineFinish, EngineMessage, MessageProcessor, ProcessorConfig, SpenderKind, TokenUsage,
    UsageRow, total,
};
use shikiri_model::time::Timestamp;

use super::world::{Account, World};

pub(crate) struct Outcome {
    pub(crate) account: Account,
    pub(crate) events: Vec<(&'static str, Value)>,
    pub(crate) processor: MessageProcessor,
    pub(crate) outcome: Result<(), EngineError>,
}

impl Outcome {
    pub(crate) fn new(account: Account, outcome: Result<(), EngineError>) -> Self {
        let mut processor =
            MessageProcessor::new(ProcessorConfig { turn: 1, ..ProcessorConfig::default() });
        let mut events = Vec::new();
        for message in &account.again {
            processor.replay(message.clone(), Timestamp::from_millis(0));
        }
        for message in &account.messages {
            for event in processor.process(message.clone(), Timestamp::from_millis(0)) {
                events.push((event.kind(), serde_json::from_str(event.data()).unwrap()));
            }
        }
        Self { account, events, processor, outcome }
    }

    pub(crate) fn of(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|(k, _)| *k == kind).map(|(_, data)| data).collect()
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.of(kind).len()
    }

    /// What readers were warned of, besides that the model is asked again.
    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.warning_codes().filter(|code| *code != "API_RETRY").collect()
    }

    /// How often readers were told that the model is asked again.
    pub(crate) fn retries(&self) -> usize {
        self.warning_codes().filter(|code| *code == "API_RETRY").count()
    }

    fn warning_codes(&self) -> impl Iterator<Item = &str> {
        self.of("warning").into_iter().map(|data| data["code"].as_str().unwrap())
    }

    pub(crate) fn notes(&self, subtype: &str) -> usize {
        let is = |m: &&EngineMessage| matches!(m, EngineMessage::Note { subtype: s, .. } if s == subtype);
        self.account.messages.iter().filter(is).count()
    }

    #[track_caller]
    pub(crate) fn finish(&self) -> &EngineFinish {
        assert_eq!(self.outcome, Ok(()), "{:#?}", self.account.messages);
        self.processor.finish().unwrap_or_else(|| panic!("{:#?}", self.account.messages))
    }

    /// The final text of a turn that went well.
    #[track_caller]
    pub(crate) fn result(&self) -> &str {
        let finish = self.finish();
        assert!(!finish.is_error, "{finish:?}");
        &finish.result
    }

    /// What went wrong in a turn that did not go well.
    #[track_caller]
    pub(crate) fn error(&self) -> &str {
        let finish = self.finish();
        assert!(finish.is_error && finish.errors.len() == 1, "{finish:?}");
        &finish.errors[0]
    }

    pub(crate) fn session_id(&self) -> &str {
        self.processor.session_id().unwrap()
    }

    pub(crate) fn rows(&self) -> Vec<UsageRow> {
        self.processor.rows()
    }

    /// The bill by spender, as the engine tells it. A subagent of the CLI has an id of its own; one
    /// of ours is known by the call that started it.
    pub(crate) fn bill(&self) -> BTreeMap<Option<String>, TokenUsage> {
        let mut bill = BTreeMap::new();
        for row in self.rows() {
            let who = row.agent_id.or(row.tool_use_id);
            let who = (row.kind == SpenderKind::Subagent).then(|| who.unwrap());
            *bill.entry(who).or_default() += row.usage;
        }
        bill
    }

    /// Every spender's tokens are those that the model told, and what each subagent ended with
    /// stands in the event of its end.
    #[track_caller]
    pub(crate) fn assert_exact(&self, world: &World) {
        assert_eq!(self.bill(), world.bill(), "{:#?}", self.account.messages);
        let all = world.bill().values().copied().sum();
        assert_eq!(total(&self.rows()).0, all);
        for end in self.of("subagent_end") {
            let agent = end["agent_id"].as_str().or(end["tool_use_id"].as_str());
            let told: TokenUsage = serde_json::from_value(end["usage"].clone()).unwrap();
            assert_eq!(Some(&told), world.bill().get(&agent.map(str::to_owned)), "{end}");
        }
        assert_eq!(self.warnings(), Vec::<&str>::new(), "{:?}", self.of("warning"));
    }
}
