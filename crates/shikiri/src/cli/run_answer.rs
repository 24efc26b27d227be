//! `shikiri runs answer`: a person answers a run's open question.

use clap::Args;
use serde_json::{Map, Value, json};
use shikiri_app::App;
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::run::{AnswerAction, QuestionAnswer, QuestionKind, Run, RunQuestion};
use shikiri_web::views::RunJson;

use super::CommonArguments;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::text::{one_line, short};

#[derive(Args)]
#[group(id = "answer_of_person", multiple = false)]
pub(super) struct Choice {
    /// Agree: every yes-or-no field of the form is yes
    #[arg(long)]
    yes: bool,
    /// Decline
    #[arg(long)]
    no: bool,
    /// The filled-in form
    #[arg(long, value_name = "JSON", value_parser = super::runs::read_input)]
    answer: Option<Value>,
}

pub(super) async fn run(
    app: &App,
    run: &RunId,
    question: Option<&QuestionId>,
    choice: Choice,
    common: &CommonArguments,
) -> Result<(), Failure> {
    let view = app.runtime.run(&common.tenant.id, run).await?;
    let asked = find(&view.run, question)?;
    let answer = choice.answer_to(asked)?;
    let view = app.runtime.answer_run(&common.tenant.id, run, &asked.id, answer).await?;
    if common.json.json {
        return Output::stdout().json(&RunJson::from(view));
    }
    Output::stdout().line(&format!("{run} is answered and goes on"))
}

/// The named question, else the only one that a person is asked.
fn find<'a>(run: &'a Run, named: Option<&QuestionId>) -> Result<&'a RunQuestion, Failure> {
    if let Some(id) = named {
        let found = run.questions.iter().find(|question| question.id == *id);
        return found.ok_or_else(|| {
            let next = format!("`shikiri runs show {}` shows what it asks", run.id);
            Failure::new(Exit::NotFound, format!("{} has no open question {id}", run.id), &next)
        });
    }
    let mut open = run.questions.iter().filter(|question| question.kind == QuestionKind::Human);
    match (open.next(), open.next()) {
        (Some(question), None) => Ok(question),
        (None, _) => {
            let next = format!("`shikiri attach {}` tells what it does", run.id);
            Err(Failure::new(Exit::Refused, format!("{} asks nothing of a person", run.id), &next))
        }
        (Some(_), Some(_)) => {
            let next = format!("name one; `shikiri runs show {}` shows them", run.id);
            Err(Failure::usage(format!("{} has several open questions", run.id), &next))
        }
    }
}

impl Choice {
    fn answer_to(self, asked: &RunQuestion) -> Result<QuestionAnswer, Failure> {
        if self.no {
            return Ok(QuestionAnswer::new(AnswerAction::Decline, Value::Null));
        }
        if let Some(answer) = self.answer {
            return Ok(QuestionAnswer::accept(answer));
        }
        if self.yes {
            return Ok(QuestionAnswer::accept(all_yes(&asked.schema)));
        }
        let form = short(&asked.schema["properties"].to_string(), 400);
        let what = format!("it asks: {} Its form: {form}", one_line(&asked.message));
        Err(Failure::usage(what, "answer with --yes, --no or --answer JSON"))
    }
}

/// What a form without other fields needs for a yes.
fn all_yes(schema: &Value) -> Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let switches = fields.filter(|(_, field)| field["type"] == "boolean");
    Value::Object(switches.map(|(name, _)| (name.clone(), json!(true))).collect::<Map<_, _>>())
}
