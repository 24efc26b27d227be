//! The record of a lane.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Number;

use super::caller_identity::CallerIdentity;
use super::chat_url::is_chat_url;
use crate::ids::{InquiryId, LaneId, NodeId, TenantId};
use crate::macros::document;
use crate::record::{Document, RecordColumns};
use crate::time::Timestamp;

/// How long the chats of an ended lane are kept for an agent that returns.
const REMEMBERED: Duration = Duration::from_secs(90 * 24 * 3_600);

/// The number of former holders that are kept. Older ones have no question in flight.
const MAX_FORMER: usize = 16;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    pub id: LaneId,
    pub tenant: TenantId,
    /// `claude-code-12345`, or `claude-code-12345.a6f3` for a subagent. Unique in the tenant.
    pub name: String,
    pub agent: String,
    pub is_declared: bool,
    pub instance: String,
    #[serde(default)]
    pub subagent: Option<String>,
    /// The key of its holder; None for an imported lane without a holder yet.
    #[serde(default)]
    pub holder: Option<String>,
    /// Former holders, the latest last. Their open questions continue in this lane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<String>,
    /// The process of its holder.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// Chats by provider.
    #[serde(default)]
    pub threads: BTreeMap<String, ProviderChat>,
    /// Questions in flight, by provider. One whose lease has run out is over.
    #[serde(default)]
    pub in_flight: BTreeMap<String, InquiryId>,
    pub opened_at: Timestamp,
    pub last_access: Timestamp,
    /// The lifetime that was configured where the lane was last used.
    pub ttl_ms: u64,
    /// The lane is not listed any more. Its chats are kept.
    #[serde(default)]
    pub is_ended: bool,
    /// The file that it was imported from, so that a second import changes nothing.
    #[serde(default)]
    pub source: Option<String>,
}

/// A chat at a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProviderChat {
    /// The address of a conversation; None while there is a tab but no chat yet.
    #[serde(default)]
    pub url: Option<String>,
    #[serde(default)]
    pub tab: Option<TabId>,
}

/// Our own ids are a browser's target ids. Those of imported files are numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TabId {
    Target(String),
    Number(Number),
}

impl TabId {
    pub fn target(&self) -> Option<&str> {
        match self {
            Self::Target(id) => Some(id),
            Self::Number(_) => None,
        }
    }
}

impl Lane {
    pub fn open(
        id: LaneId,
        tenant: TenantId,
        who: &CallerIdentity,
        name: String,
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            tenant,
            name,
            agent: who.agent.clone(),
            is_declared: who.is_declared,
            instance: who.instance.clone(),
            subagent: who.subagent.clone(),
            holder: Some(who.lane_holder()),
            former: Vec::new(),
            node: who.node.clone(),
            threads: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            opened_at: now,
            last_access: now,
            ttl_ms: 0,
            is_ended: false,
            source: None,
        }
    }

    pub fn is_held_by(&self, who: &CallerIdentity) -> bool {
        self.holder.as_deref() == Some(who.lane_holder().as_str())
    }

    /// Whether the caller held it before its present holder.
    pub fn was_held_by(&self, who: &CallerIdentity) -> bool {
        self.former.contains(&who.lane_holder())
    }

    /// Transfers the lane with its chats to a returning agent, under its new name.
    pub fn transfer_to(&mut self, who: &CallerIdentity, name: String) {
        self.name = name;
        self.instance.clone_from(&who.instance);
        let before = self.holder.replace(who.lane_holder());
        self.former.extend(before.filter(|before| *before != who.lane_holder()));
        let surplus = self.former.len().saturating_sub(MAX_FORMER);
        self.former.drain(..surplus);
        self.node.clone_from(&who.node);
        self.is_declared = who.is_declared;
    }

    pub fn touch(&mut self, ttl: Duration, now: Timestamp) {
        // A clock that was set back does not make the lane older.
        self.last_access = self.last_access.max(now);
        self.ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    }

    pub fn ends_at(&self) -> Timestamp {
        self.last_access + Duration::from_millis(self.ttl_ms)
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.ends_at()
    }

    /// Whether its chats can be removed, too.
    pub fn is_purgeable(&self, now: Timestamp) -> bool {
        self.is_ended && now >= self.ends_at() + REMEMBERED
    }

    /// Ends the lane. Returns the tabs to close; the chats are kept.
    pub fn end(&mut self) -> BTreeMap<String, String> {
        self.is_ended = true;
        self.in_flight.clear();
        let tabs = self.tabs();
        self.threads.retain(|_, thread| {
            thread.tab = None;
            thread.url.is_some()
        });
        tabs
    }

    /// Open tabs by provider.
    pub fn tabs(&self) -> BTreeMap<String, String> {
        let tab = |thread: &ProviderChat| thread.tab.as_ref()?.target().map(str::to_owned);
        self.threads.iter().filter_map(|(p, thread)| Some((p.clone(), tab(thread)?))).collect()
    }

    /// Records the chat's address and tab after a question. An address that is not a chat is
    /// ignored and does not replace one.
    pub fn finish_question(&mut self, provider: &str, url: Option<&str>, tab: Option<&str>) {
        self.in_flight.remove(provider);
        let thread = self.threads.entry(provider.to_owned()).or_default();
        if let Some(url) = url.filter(|url| is_chat_url(url)) {
            thread.url = Some(url.to_owned());
        }
        if let Some(tab) = tab {
            thread.tab = Some(TabId::Target(tab.to_owned()));
        }
        self.threads.retain(|_, thread| thread.url.is_some() || thread.tab.is_some());
    }

    /// The chat was deleted at the provider.
    pub fn drop_url(&mut self, provider: &str) {
        if let Some(thread) = self.threads.get_mut(provider) {
            thread.url = None;
        }
    }

    pub fn url(&self, provider: &str) -> Option<&str> {
        self.threads.get(provider)?.url.as_deref()
    }

    pub fn tab(&self, provider: &str) -> Option<&str> {
        self.threads.get(provider)?.tab.as_ref()?.target()
    }

    /// The name of the lease for a question in this lane.
    pub fn lease(&self, provider: &str) -> String {
        format!("lane/{}/{provider}", self.id)
    }
}

document!(Lane, "lane", tenant, id, |lane| {
    let ends_at = lane.ends_at();
    RecordColumns {
        state: if lane.is_ended { "ended" } else { "open" }.to_owned(),
        parent: Some(lane.agent.clone()),
        owner: None,
        unique: Some(lane.name.clone()),
        due_at: Some(if lane.is_ended { ends_at + REMEMBERED } else { ends_at }),
    }
});

/// Written with every lane that is opened, so that two processes cannot exceed the limit together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneCounter {
    pub tenant: TenantId,
    /// The number of lanes that were ever opened.
    pub opened: u64,
}

impl LaneCounter {
    pub const ID: &'static str = "lanes";
}

impl Document for LaneCounter {
    const KIND: &'static str = "lane_roster";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        Self::ID
    }

    fn columns(&self) -> RecordColumns {
        RecordColumns::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::CallerOrigin;

    fn lane() -> Lane {
        let way = CallerOrigin::Process { pid: 7, started_ms: 1, declared: Some("a".into()) };
        let who = CallerIdentity::of(&way, "");
        let (id, now) = ("lan_1".parse().unwrap(), Timestamp::from_millis(0));
        Lane::open(id, TenantId::local(), &who, who.lane_name(), now)
    }

    #[test]
    fn every_use_gives_it_its_whole_time_again() {
        let (ttl, at) = (Duration::from_millis(100), Timestamp::from_millis);
        let mut lane = lane();
        lane.touch(ttl, at(50));
        assert!(!lane.is_expired(at(149)) && lane.is_expired(at(150)));
        lane.touch(ttl, at(149));
        assert!(!lane.is_expired(at(248)) && lane.is_expired(at(249)));
        lane.touch(ttl, at(10));
        assert_eq!(lane.last_access, at(149));
    }

    #[test]
    fn an_ended_lane_remembers_its_chats_and_has_no_tabs() {
        let mut lane = lane();
        lane.finish_question("chatgpt", Some("https://chatgpt.com/c/1"), Some("T1"));
        lane.finish_question("gemini", Some("https://gemini.google.com/app"), Some("T2"));
        assert_eq!((lane.url("gemini"), lane.tab("gemini")), (None, Some("T2")));
        let tabs = lane.end();
        assert_eq!(
            tabs.into_iter().collect::<Vec<_>>(),
            [("chatgpt".to_owned(), "T1".to_owned()), ("gemini".to_owned(), "T2".to_owned())]
        );
        assert_eq!(lane.url("chatgpt"), Some("https://chatgpt.com/c/1"));
        assert!(lane.is_ended && lane.tabs().is_empty() && !lane.threads.contains_key("gemini"));
    }

    #[test]
    fn who_had_it_before_is_remembered_for_a_while() {
        let who = |pid| {
            let way = CallerOrigin::Process { pid, started_ms: 1, declared: Some("a".into()) };
            CallerIdentity::of(&way, "")
        };
        let mut lane = lane();
        for pid in 8..40 {
            lane.transfer_to(&who(pid), who(pid).lane_name());
            lane.transfer_to(&who(pid), who(pid).lane_name());
        }
        assert!(
            lane.is_held_by(&who(39)) && lane.was_held_by(&who(38)) && lane.was_held_by(&who(23))
        );
        assert!(!lane.was_held_by(&who(39)) && !lane.was_held_by(&who(22)));
    }

    #[test]
    fn a_page_that_is_no_chat_does_not_replace_one() {
        let mut lane = lane();
        lane.finish_question("chatgpt", Some("https://chatgpt.com/c/1"), None);
        lane.finish_question("chatgpt", Some("https://chatgpt.com/"), None);
        assert_eq!(lane.url("chatgpt"), Some("https://chatgpt.com/c/1"));
        lane.drop_url("chatgpt");
        assert_eq!(lane.url("chatgpt"), None);
    }
}
