//! Groups of tools, by which a client asks for a part of them: `shikiri mcp --tools runs,lanes`, or
//! `/mcp?tools=runs,lanes`.

use std::str::FromStr;

use axum::extract::Query;
use axum::http::Uri;

/// Tools that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolGroup {
    /// `run_agent`, `run_status` and so on.
    Runs,
    /// Asking chat pages.
    Lanes,
    /// Agents that work together in a project.
    Teams,
    /// The sample agents.
    Samples,
    /// All other agents.
    Agents,
}

impl ToolGroup {
    pub const ALL: [Self; 5] = [Self::Runs, Self::Lanes, Self::Teams, Self::Samples, Self::Agents];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Lanes => "lanes",
            Self::Teams => "teams",
            Self::Samples => "samples",
            Self::Agents => "agents",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.as_str() == name)
    }

    /// The group of an agent's tool, as the agent names it.
    pub(crate) fn of_agent(name: &str) -> Self {
        Self::named(name).unwrap_or(Self::Agents)
    }
}

/// The groups that a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolSelection([bool; ToolGroup::ALL.len()]);

impl ToolSelection {
    pub const ALL: Self = Self([true; ToolGroup::ALL.len()]);

    /// Tools without a group belong to every selection.
    pub(crate) fn includes(self, group: Option<ToolGroup>) -> bool {
        let Self(chosen) = self;
        let is_chosen = |(of, chosen): (ToolGroup, bool)| chosen && Some(of) == group;
        group.is_none() || ToolGroup::ALL.into_iter().zip(chosen).any(is_chosen)
    }

    /// What both include.
    pub(crate) fn and(self, other: Self) -> Self {
        let mut both = self;
        both.0.iter_mut().zip(other.0).for_each(|(one, other)| *one &= other);
        both
    }

    /// The selection in an address such as `/mcp?tools=runs,lanes`; all, if there is none.
    pub(crate) fn of_address(address: &Uri) -> Result<Self, String> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(address)
            .map_err(|error| error.body_text())?;
        let mut selected = None;
        for (_, groups) in pairs.into_iter().filter(|(name, _)| name == "tools") {
            if selected.replace(groups.parse()?).is_some() {
                return Err("tools: was given twice".to_owned());
            }
        }
        Ok(selected.unwrap_or(Self::ALL))
    }
}

impl Default for ToolSelection {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromStr for ToolSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut selected = Self([false; ToolGroup::ALL.len()]);
        for name in text.split(',').map(str::trim) {
            let Some(group) = ToolGroup::named(name) else {
                let known = ToolGroup::ALL.map(ToolGroup::as_str).join(", ");
                return Err(format!("tools: there is no group {name:?}; there are: {known}"));
            };
            let places = ToolGroup::ALL.into_iter().zip(&mut selected.0);
            places.filter(|(of, _)| *of == group).for_each(|(_, chosen)| *chosen = true);
        }
        Ok(selected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_includes_its_groups_and_what_has_none() {
        let selected: ToolSelection = "runs, lanes".parse().unwrap();
        let included = ToolGroup::ALL.map(|group| selected.includes(Some(group)));
        assert_eq!(included, [true, true, false, false, false]);
        assert!(selected.includes(None));
        let both = selected.and("lanes,teams".parse().unwrap());
        assert_eq!(both, "lanes".parse().unwrap());
        assert_eq!(ToolSelection::ALL.and(selected), selected);
    }

    #[test]
    fn an_unknown_group_is_refused_with_those_that_there_are() {
        for bad in ["", "runs,", "Runs", "all", "runs;lanes"] {
            let refused = bad.parse::<ToolSelection>().unwrap_err();
            assert!(refused.ends_with("runs, lanes, teams, samples, agents"), "{refused}");
        }
    }

    #[test]
    fn an_address_may_name_groups_once() {
        let read =
            |query: &str| ToolSelection::of_address(&format!("/mcp{query}").parse().unwrap());
        assert_eq!(read(""), Ok(ToolSelection::ALL));
        assert_eq!(read("?x=1"), Ok(ToolSelection::ALL));
        assert_eq!(read("?tools=runs%2Clanes"), "runs,lanes".parse());
        for bad in ["?tools=", "?tools=x", "?tools=runs&tools=lanes"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
