//! The team tools as models see them. Names, arguments and answers are the contract's; who may use
//! which is said by the model's table alone.

use std::sync::Arc;

use rmcp::model::{Icon, Tool, ToolAnnotations};
use serde_json::json;

use super::fields::Kind::{Any, Choice, Flag, List, Number, Object, Text, Whole};
use super::fields::{Field, may, must, schema};
use crate::server::ICON;

pub(super) struct Definition {
    pub(super) name: &'static str,
    title: &'static str,
    about: &'static str,
    /// Besides the session's token.
    arguments: &'static [Field],
    answer: &'static [Field],
    hint: Hint,
}

#[derive(PartialEq, Eq)]
enum Hint {
    Reads,
    Writes,
    /// Once is enough: the same again changes nothing, or is refused.
    Settles,
}

const TOKEN: Field = may(
    "session_token",
    Text,
    "From authenticate. It may be left out where the Authorization header holds it",
);
const WAIT: Field = may(
    "wait_seconds",
    Number,
    "If there is nothing yet, wait so long for something (0 to 30). Give 30: you are woken at once",
);
const TARGET: Field = must("target_agent_id", Text, "Another agent of your project");
const CONVERSATION: Field = must("conversation_id", Text, "");
const CONTENT: Field = must("content", Text, "What you say, 1 to 4,000 characters");
const STATE: Field = must("state", Choice(&["pending", "active", "ended"]), "");
const MESSAGE_ID: Field = must("message_id", Text, "");
const DELEGATION_ID: Field = must("delegation_id", Text, "");
const SPOKEN: &[Field] = &[
    MESSAGE_ID,
    must("turns_left", Whole, "Messages that may still follow, of both sides"),
    STATE,
];
const DELEGATION: &[Field] =
    &[must("delegation", Object, ""), DELEGATION_ID, must("status", Text, "")];

impl Definition {
    pub(super) fn fields(&self) -> Vec<&Field> {
        let token = (self.name != "authenticate").then_some(&TOKEN);
        token.into_iter().chain(self.arguments).collect()
    }

    pub(super) fn tool(&self) -> Tool {
        let mut input = schema(self.fields().into_iter());
        input.insert("additionalProperties".to_owned(), json!(false));
        let mut tool = Tool::new(self.name, self.about, Arc::new(input));
        tool.title = Some(self.title.to_owned());
        tool.output_schema = Some(Arc::new(schema(self.answer.iter())));
        let hints = ToolAnnotations::with_title(self.title).open_world(false).destructive(false);
        let hints = hints.idempotent(self.hint != Hint::Writes);
        tool.annotations = Some(hints.read_only(self.hint == Hint::Reads));
        tool.icons = Some(vec![Icon::new(ICON).with_mime_type("image/svg+xml")]);
        tool
    }
}

pub(super) const DEFINITIONS: [Definition; 15] = [
    Definition {
        name: "authenticate",
        title: "Log in as an agent",
        about: "Opens a session in a project and answers with its session_token, to be given with \
                every other team tool. A task session works: get_next_action, do the work, \
                report_completed; it cannot talk, and hands what is to be said to \
                delegate_to_chat_session. A chat session talks: get_pending_messages, then answer \
                each thing in it. Without a purpose, what waits for you decides, tasks first. You \
                may have a session of each purpose at once.",
        arguments: &[
            must("agent_id", Text, "Who you are"),
            must("passkey", Text, "What proves it"),
            must("project_id", Text, "Where you work"),
            may("purpose", Choice(&["task", "chat"]), "What the session is for"),
        ],
        answer: &[
            must("session_token", Text, "Shown once"),
            must("purpose", Choice(&["task", "chat"]), ""),
            must("expires_at", Text, "RFC 3339"),
            may("next_step", Text, "What to call now"),
        ],
        hint: Hint::Writes,
    },
    Definition {
        name: "help",
        title: "What can I do?",
        about: "Lists the tools that your session may use, and how to go about it.",
        arguments: &[],
        answer: &[must("tools", List, "Names of tools"), may("next_step", Text, "")],
        hint: Hint::Reads,
    },
    Definition {
        name: "get_next_action",
        title: "What to do next",
        about: "For task sessions. Tells what to do now. `work`: do the task, then call \
                report_completed. `wait_for_delegation`: your chat session is still talking; call \
                this again with wait_seconds 30, do not ask in other ways. `delegation_result`: \
                what became of a delegation, with the messages; go on with your task. `none`: \
                nothing to do; end, or wait with wait_seconds.",
        arguments: &[WAIT],
        answer: &[
            must(
                "action",
                Choice(&["work", "wait_for_delegation", "delegation_result", "none"]),
                "",
            ),
            may("task", Object, "With work"),
            may("delegation_id", Text, "With a delegation"),
            may("status", Text, "How the delegation ended: completed or failed"),
            may("result", Any, "What came of it"),
            may("messages", List, "What was said"),
        ],
        hint: Hint::Settles,
    },
    Definition {
        name: "report_completed",
        title: "Report a task",
        about: "For task sessions. Says that a task of yours is done, or blocked, with its result. \
                If others were to be told or asked for it, let the delegation end first.",
        arguments: &[
            must("task_id", Text, "From get_next_action"),
            may("result", Any, "What came of it, as a text or an object"),
            may("status", Choice(&["done", "blocked"]), "done, unless said otherwise"),
        ],
        answer: &[must("task", Object, ""), must("task_id", Text, ""), must("status", Text, "")],
        hint: Hint::Settles,
    },
    Definition {
        name: "delegate_to_chat_session",
        title: "Have your chat session talk",
        about: "For task sessions, which cannot send messages or converse. Says whom to talk to and \
                what for; your own chat session does it, in the way that fits. Answers at once. \
                Then call get_next_action with wait_seconds 30 until it gives the result.",
        arguments: &[
            TARGET,
            must(
                "purpose",
                Text,
                "What the talk is for, as you would tell a colleague: what to say \
                                   or ask, how many rounds, what to bring back",
            ),
            may("context", Text, "What your chat session should know besides"),
        ],
        answer: &[must("success", Flag, ""), DELEGATION_ID, must("message", Text, "")],
        hint: Hint::Writes,
    },
    Definition {
        name: "get_delegation",
        title: "Look at a delegation",
        about: "Tells how far a delegation of yours is, and its result. To wait for one, call \
                get_next_action instead.",
        arguments: &[DELEGATION_ID],
        answer: DELEGATION,
        hint: Hint::Reads,
    },
    Definition {
        name: "get_pending_messages",
        title: "What has come",
        about: "For chat sessions. Everything that waits for you, each thing once. \
                pending_messages: one with a conversation_id is your turn there, so answer with \
                send_conversation_message; one without is answered with respond_chat. \
                pending_delegations: yours to carry out now, by start_conversation if several \
                exchanges are wanted, by send_message for a notice, with the delegation_id. \
                invitations: answer with respond_conversation_message. ended_conversations: nothing \
                more can be said there; told_before marks one that an earlier answer told, which \
                you may have missed. Call it again with wait_seconds 30 after you have dealt \
                with everything, until nothing comes any more and no conversation of yours is open.",
        arguments: &[WAIT],
        answer: &[
            must("pending_messages", List, "message_id, from_agent_id, content, conversation_id?"),
            must("pending_delegations", List, "delegation_id, target_agent_id, purpose, context"),
            must("invitations", List, "conversation_id, from_agent_id, initial_message"),
            must("ended_conversations", List, "conversation_id, reason, told_before?"),
        ],
        hint: Hint::Writes,
    },
    Definition {
        name: "respond_chat",
        title: "Answer a message",
        about: "For chat sessions. Answers a message that came outside a conversation, also a \
                person's.",
        arguments: &[
            may("message_id", Text, "Which one; the last that came, if left out"),
            CONTENT,
        ],
        answer: &[MESSAGE_ID],
        hint: Hint::Writes,
    },
    Definition {
        name: "send_message",
        title: "Send a message",
        about: "For chat sessions. One message to an agent or a person, for which no answer is \
                waited for. With a delegation_id, that delegation is completed by it.",
        arguments: &[TARGET, CONTENT, may("delegation_id", Text, "What it carries out")],
        answer: &[MESSAGE_ID],
        hint: Hint::Writes,
    },
    Definition {
        name: "start_conversation",
        title: "Start a conversation",
        about: "For chat sessions. Invites another AI agent and says the first message. Then the two \
                sides speak strictly in turn: wait for the answer with get_pending_messages \
                (wait_seconds 30), say the next with send_conversation_message, and so on; \
                end_conversation when it is over. It ends by itself at max_turns, or when nobody \
                speaks for long. With a delegation_id its end completes the delegation.",
        arguments: &[
            TARGET,
            must("initial_message", Text, "The first message, 1 to 4,000 characters"),
            may("purpose", Text, "What it is about, for the other side"),
            may(
                "max_turns",
                Whole,
                "Messages of both sides together, the first among them: 2 to 40, \
                                     20 if left out. Six rounds are 12",
            ),
            may("delegation_id", Text, "What it carries out"),
        ],
        answer: &[
            CONVERSATION,
            STATE,
            must("your_turn", Flag, ""),
            may("turns_left", Whole, "Messages that may still follow, of both sides"),
        ],
        hint: Hint::Writes,
    },
    Definition {
        name: "send_conversation_message",
        title: "Say the next message",
        about: "For chat sessions. Your message in a conversation, when it is your turn. Then wait \
                for the other side with get_pending_messages.",
        arguments: &[CONVERSATION, CONTENT],
        answer: SPOKEN,
        hint: Hint::Writes,
    },
    Definition {
        name: "respond_conversation_message",
        title: "Answer in a conversation",
        about: "For chat sessions. Your answer to an invitation or a message of a conversation, when \
                it is your turn. Then wait for the other side with get_pending_messages.",
        arguments: &[CONVERSATION, CONTENT],
        answer: SPOKEN,
        hint: Hint::Writes,
    },
    Definition {
        name: "end_conversation",
        title: "End a conversation",
        about: "For chat sessions. Ends a conversation of yours; it need not be your turn. Both \
                sides are told once.",
        arguments: &[CONVERSATION, may("reason", Text, "Why, in your words")],
        answer: &[STATE, must("end_reason", Text, "")],
        hint: Hint::Settles,
    },
    Definition {
        name: "get_conversation_messages",
        title: "Read a conversation",
        about: "What was said in a conversation of yours, now or after it ended.",
        arguments: &[
            CONVERSATION,
            may("after", Any, "Only what follows this message: its message_id or its seq"),
            WAIT,
        ],
        answer: &[must("messages", List, ""), STATE, must("your_turn", Flag, "")],
        hint: Hint::Reads,
    },
    Definition {
        name: "report_delegation_completed",
        title: "Report a delegation",
        about: "For chat sessions. Adds, in your words, what came of a delegation that you carried \
                out, or says that you could not. The end of its conversation completes it without \
                this.",
        arguments: &[
            DELEGATION_ID,
            must("status", Choice(&["completed", "failed"]), ""),
            may("result", Any, "What your task session should know"),
        ],
        answer: DELEGATION,
        hint: Hint::Settles,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use shikiri_model::team::TOOLS;

    #[test]
    fn every_tool_of_the_permission_table_is_offered() {
        let mut offered: Vec<_> = DEFINITIONS.iter().map(|one| one.name).collect();
        let mut listed: Vec<_> = TOOLS.iter().map(|(name, _)| *name).collect();
        offered.sort_unstable();
        listed.sort_unstable();
        assert_eq!(offered, listed);
    }
}
