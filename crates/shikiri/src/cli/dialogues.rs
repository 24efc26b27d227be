//! `shikiri dialogues list|show|cancel`.

use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::event::EventRef;
use shikiri_model::ids::DialogueId;
use shikiri_model::record::StoredDocument;
use shikiri_model::team::{Dialogue, DialogueState};
use shikiri_teams::DialogueLine;
use shikiri_web::views::{DialogueJson, DialogueLineJson};

use super::JsonArgument;
use super::id_argument::IdArgument;
use super::parts::{or_none, print_page, sheet, word};
use super::team::{ProjectArgument, Where};
use crate::exit::Failure;
use crate::output::{Output, Style, note};
use crate::signals::Signals;
use crate::table::TableColumn;
use crate::text::{one_line, short};
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Show dialogues, oldest first
    List {
        /// Only those in this state
        #[arg(long, value_parser = word::<DialogueState>())]
        state: Option<DialogueState>,
        /// Show at most this many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// Show one dialogue and what was said
    Show {
        /// Its id, a unique ending of it, or @last for the newest
        dialogue: IdArgument<DialogueId>,
        /// Tell what is said as it is said, to the end; Ctrl-C detaches
        #[arg(long)]
        follow: bool,
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// End a dialogue; both agents are notified
    Cancel {
        /// Its id, a unique ending of it, or @last for the newest
        dialogue: IdArgument<DialogueId>,
        #[command(flatten)]
        project: ProjectArgument,
    },
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Cancel { .. } => Access::Write,
            Self::List { .. } | Self::Show { .. } => Access::Read,
        }
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::List { state, limit, project } => list(app, state, limit, &project).await,
        Command::Show { dialogue, follow: true, project } => {
            let found = project.find(app).await?;
            let dialogue = dialogue.resolve_in(app, &found).await?;
            follow(app, &found, &dialogue, project.json.json).await
        }
        Command::Show { dialogue, follow: false, project } => {
            let found = project.find(app).await?;
            let dialogue = dialogue.resolve_in(app, &found).await?;
            let stored = app.teams.dialogue_of(&found.tenant, &found.project, &dialogue).await?;
            let said = app.teams.transcript(&found.tenant, &dialogue).await?;
            show(stored, said, project.json)
        }
        Command::Cancel { dialogue, project } => {
            let found = project.find(app).await?;
            let dialogue = dialogue.resolve_in(app, &found).await?;
            let ended = app.teams.cancel_dialogue(&found.tenant, &found.project, &dialogue).await?;
            if project.json.json {
                return Output::stdout().json(&DialogueJson::from(ended));
            }
            Output::stdout().line(&format!("dialogue {dialogue} is cancelled"))
        }
    }
}

async fn list(
    app: &App,
    state: Option<DialogueState>,
    limit: u32,
    project: &ProjectArgument,
) -> Result<(), Failure> {
    let found = project.find(app).await?;
    let page = app.teams.list_dialogues(&found.tenant, &found.project, state, None, limit).await?;
    let row = |stored: &StoredDocument<Dialogue>| {
        let dialogue = &stored.value;
        vec![
            dialogue.id.to_string(),
            state_word(dialogue),
            format!("{}/{}", dialogue.messages, dialogue.max_turns),
            dialogue.initiator.to_string(),
            dialogue.participant.to_string(),
            short(dialogue.purpose.as_deref().unwrap_or_default(), 40),
        ]
    };
    let columns = [
        TableColumn::id("id"),
        TableColumn::state("state"),
        TableColumn::text("messages"),
        TableColumn::text("from"),
        TableColumn::text("with"),
        TableColumn::text("purpose").minor(),
    ];
    print_page::<DialogueJson, _>(
        page,
        project.json,
        &columns,
        "No dialogues like that. Agents begin them with the tool start_conversation.",
        row,
    )
}

/// The dialogue's state, and how it ended.
fn state_word(dialogue: &Dialogue) -> String {
    match &dialogue.end {
        Some(end) => {
            let remark = dialogue.failure().map_or(String::new(), |why| format!(" ({why})"));
            format!("ended: {}{remark}", end.reason.as_str())
        }
        None => dialogue.state.as_str().to_owned(),
    }
}

/// A dialogue with all its messages.
#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    dialogue: DialogueJson,
    transcript: Vec<DialogueLineJson>,
}

fn show(
    stored: StoredDocument<Dialogue>,
    said: Vec<DialogueLine>,
    json: JsonArgument,
) -> Result<(), Failure> {
    let output = Output::stdout();
    if json.json {
        let transcript = said.into_iter().map(DialogueLineJson::from).collect();
        return output.json(&Whole { dialogue: stored.into(), transcript });
    }
    let dialogue = &stored.value;
    let next = dialogue.is_living().then(|| dialogue.agent(dialogue.turn).as_str());
    sheet(&[
        ("dialogue", dialogue.id.to_string()),
        ("state", output.state(&state_word(dialogue))),
        ("from", dialogue.initiator.to_string()),
        ("with", dialogue.participant.to_string()),
        ("purpose", short(dialogue.purpose.as_deref().unwrap_or("none"), 200)),
        ("messages", format!("{} of {}", dialogue.messages, dialogue.max_turns)),
        ("next", or_none(next)),
        ("created", output.time(stored.created_at)),
    ])?;
    for line in &said {
        let at = line.said.created_at.to_string();
        output.line(&said_line(
            output,
            &at,
            line.said.from_agent_id.as_str(),
            &line.said.content,
        ))?;
    }
    Ok(())
}

/// Time, speaker and text. The text is never cut, because this command exists to show it.
fn said_line(output: Output, at: &str, from: &str, content: &str) -> String {
    let time = output.paint(Style::Dim, &output.time_of_day(at));
    format!("{time}  {}: {}", output.paint(Style::Bold, from), one_line(content))
}

async fn follow(app: &App, found: &Where, id: &DialogueId, as_json: bool) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    let dialogue = app.teams.dialogue_of(&found.tenant, &found.project, id).await?;
    let mut watch = app.runtime.watch(&found.tenant, dialogue.value.stream(), 0).await?;
    let output = Output::stdout();
    loop {
        let delivery = tokio::select! {
            delivery = watch.next() => delivery?,
            _ = signals.next() => {
                note("detached; the dialogue goes on");
                return Ok(());
            }
        };
        let Some(delivery) = delivery else { return Ok(()) };
        for event in delivery.events() {
            let data = serde_json::from_str(event.data).unwrap_or(Value::Null);
            if as_json {
                output.json_line(&json_of(id, event, data))?;
            } else {
                output.line(&event_line(output, event, &data))?;
            }
        }
    }
}

/// The data of the event's SSE frame, and its name.
fn json_of(id: &DialogueId, event: EventRef<'_>, data: Value) -> Value {
    let mut all = json!({
        "seq": event.seq, "at": event.at, "conversation_id": id, "event": event.kind,
    });
    if let (Some(all), Value::Object(data)) = (all.as_object_mut(), data) {
        for (key, value) in data {
            all.entry(key).or_insert(value);
        }
    }
    all
}

fn event_line(output: Output, event: EventRef<'_>, data: &Value) -> String {
    let text = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
    let at = event.at.to_string();
    match event.kind {
        "message" => said_line(output, &at, &one_line(&text("from_agent_id")), &text("content")),
        "conversation_ended" => {
            let time = output.paint(Style::Dim, &output.time_of_day(&at));
            format!("{time}  ended: {} {}", one_line(&text("reason")), one_line(&text("note")))
                .trim_end()
                .to_owned()
        }
        other => format!("{at}  {}", one_line(other)),
    }
}
