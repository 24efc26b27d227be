//! Ids as people type them: whole, as an ending that only one of them has, or as `@last` for the
//! newest. Resolved before a use case is called, in the tenant's own records, newest first.

use std::marker::PhantomData;
use std::str::FromStr;

use shikiri_app::App;
use shikiri_model::conversation::Conversation;
use shikiri_model::host::HostCall;
use shikiri_model::ids::{
    ConversationId, DelegationId, DialogueId, HostCallId, InvalidId, KeyId, MessageId, ModelId,
    ProjectId, RunId, ServerId, TaskId, TenantId,
};
use shikiri_model::key::ApiKey;
use shikiri_model::lane::Lane;
use shikiri_model::models::Model;
use shikiri_model::record::{Document, RecordQuery, StoredDocument};
use shikiri_model::run::Run;
use shikiri_model::server::McpServer;
use shikiri_model::team::{Delegation, Dialogue, Project, TeamMessage, TeamTask};
use shikiri_runtime::AppError;
use shikiri_store::StoreExt as _;

use super::team::Where;
use crate::exit::{Exit, Failure};
use crate::output::note;
use crate::short_ids::{LEAST_TYPED, is_minted};

/// Stands for the newest record.
const LAST: &str = "@last";
/// So many of the newest records are looked at.
const MAX_SEARCHED: usize = 10_000;
const PAGE: u32 = 500;
/// So many of the ids that an ending could mean are named.
const MAX_NAMED: usize = 5;

/// An id of records that can be searched.
pub(super) trait StoredId: FromStr<Err = InvalidId> + Clone + Send + Sync {
    type Record: Document + Send;
}

macro_rules! stored_ids {
    ($($id:ty => $record:ty),+ $(,)?) => {
        $(impl StoredId for $id {
            type Record = $record;
        })+
    };
}

stored_ids!(
    RunId => Run,
    ConversationId => Conversation,
    DialogueId => Dialogue,
    DelegationId => Delegation,
    TaskId => TeamTask,
    MessageId => TeamMessage,
    ServerId => McpServer,
    KeyId => ApiKey,
    ModelId => Model,
    ProjectId => Project,
    HostCallId => HostCall,
);

/// An id on the command line.
#[derive(Clone, Debug)]
pub(super) struct IdArgument<T> {
    text: String,
    kind: PhantomData<fn() -> T>,
}

impl<T: StoredId> FromStr for IdArgument<T> {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        // A long name is shown with its start cut.
        let text = text.strip_prefix('…').unwrap_or(text);
        if text != LAST {
            text.parse::<T>()?;
        }
        Ok(Self { text: text.to_owned(), kind: PhantomData })
    }
}

impl<T: StoredId> IdArgument<T> {
    /// As it was typed.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The id of a tenant's record.
    pub(super) async fn resolve(&self, app: &App, tenant: &TenantId) -> Result<T, Failure> {
        self.resolve_among(app, RecordQuery::of::<T::Record>(tenant), |_| true).await
    }

    /// The id of a project's record.
    pub(super) async fn resolve_in(&self, app: &App, place: &Where) -> Result<T, Failure> {
        let parent = Some(place.project.to_string());
        let query = RecordQuery { parent, ..RecordQuery::of::<T::Record>(&place.tenant) };
        self.resolve_among(app, query, |_| true).await
    }

    /// The id of a record that belongs to no tenant.
    pub(super) async fn resolve_shared(&self, app: &App) -> Result<T, Failure> {
        self.resolve(app, &TenantId::system()).await
    }

    /// The id of one of these records, if it also passes `accepts`.
    pub(super) async fn resolve_among(
        &self,
        app: &App,
        query: RecordQuery,
        accepts: impl Fn(&str) -> bool,
    ) -> Result<T, Failure> {
        if !self.is_searched() {
            return self.as_typed();
        }
        let (store, tenant) =
            (app.runtime.store(), query.tenant.clone().unwrap_or(TenantId::system()));
        // A name that looks like an ending comes first.
        if self.text != LAST
            && store.load::<T::Record>(&tenant, &self.text).await.map_err(AppError::from)?.is_some()
        {
            return self.as_typed();
        }
        let page = async |after| {
            let query = RecordQuery { after, newest_first: true, limit: PAGE, ..query.clone() };
            let (records, next) = app.runtime.list_page(query).await?;
            Ok((records.into_iter().map(|record| record.key.id).collect(), next))
        };
        let is_meant = |id: &str| accepts(id) && self.can_mean(id);
        let id = search_ids(&self.text, T::Record::KIND, is_meant, page).await?;
        id.parse().map_err(|error| Failure::told(Exit::Usage, error))
    }

    /// The same on a server, from its pages of ids, newest first.
    pub(super) async fn resolve_from<C>(
        &self,
        page: impl AsyncFnMut(Option<C>) -> Result<(Vec<String>, Option<C>), Failure>,
    ) -> Result<T, Failure> {
        if !self.is_searched() {
            return self.as_typed();
        }
        let is_meant = |id: &str| self.can_mean(id);
        let id = search_ids(&self.text, T::Record::KIND, is_meant, page).await?;
        id.parse().map_err(|error| Failure::told(Exit::Usage, error))
    }

    /// Whole ids and names are taken as they are: only digits can be an ending.
    fn is_searched(&self) -> bool {
        let is_ending = self.text.len() >= LEAST_TYPED
            && self.text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
        self.text == LAST || is_ending
    }

    fn can_mean(&self, id: &str) -> bool {
        self.text == LAST || is_minted(id) && id.ends_with(&self.text)
    }

    fn as_typed(&self) -> Result<T, Failure> {
        self.text.parse().map_err(|error| Failure::told(Exit::Usage, error))
    }
}

/// The name of a lane, by its end too. Lanes are named by their agents, so any text can be an end.
pub(super) async fn find_lane(
    app: &App,
    tenant: &TenantId,
    typed: &str,
) -> Result<StoredDocument<Lane>, Failure> {
    let found = app.lanes.lane(tenant, typed).await;
    let is_ending = typed == LAST || typed.chars().count() >= LEAST_TYPED;
    if !(is_ending && matches!(found, Err(AppError::NotFound { kind: "lane", .. }))) {
        return Ok(found?);
    }
    let page = async |after| {
        let query = RecordQuery {
            after,
            newest_first: true,
            limit: PAGE,
            ..RecordQuery::of::<Lane>(tenant)
        };
        let (lanes, next) = app.runtime.list_records::<Lane>(query).await?;
        Ok((lanes.into_iter().map(|stored| stored.value.name).collect(), next))
    };
    let is_meant = |name: &str| typed == LAST || name.ends_with(typed);
    let name = search_ids(typed, Lane::KIND, is_meant, page).await?;
    Ok(app.lanes.lane(tenant, &name).await?)
}

/// The only id that `is_meant` by `wanted` among pages of ids, newest first; of those that `@last`
/// can mean, the first.
pub(super) async fn search_ids<C>(
    wanted: &str,
    kind: &'static str,
    is_meant: impl Fn(&str) -> bool,
    mut page: impl AsyncFnMut(Option<C>) -> Result<(Vec<String>, Option<C>), Failure>,
) -> Result<String, Failure> {
    let (mut found, mut searched, mut after) = (Vec::new(), 0, None);
    loop {
        let (ids, next) = page(after).await?;
        searched += ids.len();
        found.extend(ids.into_iter().filter(|id| is_meant(id)));
        if wanted == LAST && !found.is_empty() {
            return Ok(found.swap_remove(0));
        }
        let has_enough = found.len() > MAX_NAMED;
        after = next.filter(|_| !has_enough);
        if after.is_none() || searched >= MAX_SEARCHED {
            break;
        }
    }
    judge(wanted, kind, found, after.is_some())
}

fn judge(
    wanted: &str,
    kind: &'static str,
    mut found: Vec<String>,
    is_larger: bool,
) -> Result<String, Failure> {
    let newest = format!("the newest {MAX_SEARCHED} were searched");
    if found.len() > 1 {
        let named: Vec<_> = found.iter().take(MAX_NAMED).map(String::as_str).collect();
        let more = if found.len() > MAX_NAMED { ", …" } else { "" };
        let what = format!("{wanted} is the end of several ids ({}{more})", named.join(", "));
        return Err(Failure::usage(what, "type more of the one you mean"));
    }
    match found.pop() {
        Some(only) => {
            if is_larger {
                note(&format!("note: {wanted} is {only}; {newest}"));
            }
            Ok(only)
        }
        None if is_larger => {
            let what = format!("no {kind} ends in {wanted}; {newest}");
            Err(Failure::new(Exit::NotFound, what, "type the whole id of an older one"))
        }
        None => Err(AppError::not_found(kind, wanted).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(tail: &str) -> String {
        format!("run_{tail:0>32}")
    }

    async fn search(wanted: &str, ids: &[String], pages: usize) -> Result<String, Failure> {
        let typed: IdArgument<RunId> = IdArgument { text: wanted.to_owned(), kind: PhantomData };
        let page = async |after: Option<usize>| {
            let at = after.unwrap_or(0);
            let filler = vec!["another".to_owned(); PAGE as usize];
            let here = if at == 0 { ids.to_vec() } else { filler };
            Ok((here, Some(at + 1).filter(|next| *next < pages)))
        };
        search_ids(wanted, "run", |id| typed.can_mean(id), page).await
    }

    #[tokio::test]
    async fn an_ending_means_the_only_id_that_has_it() {
        let ids = [id("aabbcc"), id("11bbcc"), id("ddeeff"), "run_chosen_eeff".to_owned()];
        assert_eq!(search("aabbcc", &ids, 1).await.unwrap(), ids[0]);
        assert_eq!(search("eeff", &ids, 2).await.unwrap(), ids[2], "names have no endings");
        assert_eq!(search("@last", &ids, 1).await.unwrap(), ids[0]);
        let several = search("bbcc", &ids, 1).await.unwrap_err();
        let text = several.to_string();
        assert!(several.code() == 2 && text.contains(&ids[0]) && text.contains(&ids[1]), "{text}");
        assert_eq!(search("0123", &ids, 1).await.unwrap_err().code(), 4);
        assert_eq!(search("@last", &[], 1).await.unwrap_err().code(), 4);
    }

    #[tokio::test]
    async fn a_store_that_is_too_large_is_not_said_to_be_searched_whole() {
        let none = search("0123", &[id("aabbcc")], 100).await.unwrap_err();
        assert_eq!(none.code(), 4);
        assert!(none.to_string().contains("the newest 10000 were searched"), "{none}");
        let found = search("bbcc", &[id("aabbcc")], 100).await.unwrap();
        assert_eq!(found, id("aabbcc"));
        let many: Vec<_> = (10..30).map(|n| id(&format!("{n}bbcc"))).collect();
        let several = search("bbcc", &many, 100).await.unwrap_err().to_string();
        assert!(several.contains(&many[4]) && !several.contains(&many[5]), "{several}");
    }
}
