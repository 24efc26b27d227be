use serde_json::{Value, json};

use super::*;

/// A router with two clients.
fn router() -> Router {
    let mut router = Router::default();
    router.add_client(1);
    router.add_client(2);
    router
}

impl Router {
    /// What a client's command becomes.
    fn command(&mut self, client: ClientId, command: &Value) -> Delivery {
        self.client_message(client, command.to_string().as_bytes()).unwrap()
    }

    fn chrome(&mut self, message: &Value) -> Option<Delivery> {
        self.chrome_message(message.to_string().as_bytes())
    }

    /// Attaches a client to a tab.
    fn attach(&mut self, client: ClientId, session: &str) {
        let method = "Target.attachToTarget";
        let sent = self
            .command(client, &json!({ "id": 1, "method": method, "params": { "targetId": "T" } }));
        let answer = json!({ "id": to_chrome(&sent)["id"], "result": { "sessionId": session } });
        assert_eq!(to_client(&self.chrome(&answer).unwrap(), client)["id"], 1);
    }
}

#[track_caller]
fn to_chrome(delivery: &Delivery) -> Value {
    let Delivery::ToChrome(message) = delivery else { panic!("{delivery:?}") };
    serde_json::from_slice(message).unwrap()
}

#[track_caller]
fn to_client(delivery: &Delivery, client: ClientId) -> Value {
    let Delivery::ToClient(whose, message) = delivery else { panic!("{delivery:?}") };
    assert_eq!(*whose, client);
    serde_json::from_slice(message).unwrap()
}

#[test]
fn answers_come_to_whoever_asked_under_the_numbers_that_they_gave() {
    let mut router = router();
    let ask = json!({ "id": 7, "method": "Browser.getVersion" });
    let first = to_chrome(&router.command(1, &ask))["id"].clone();
    let second = to_chrome(&router.command(2, &ask))["id"].clone();
    assert_ne!(first, second);
    let answer = router.chrome(&json!({ "id": second, "result": { "x": [1, null] } })).unwrap();
    assert_eq!(to_client(&answer, 2), json!({ "id": 7, "result": { "x": [1, null] } }));
    let answer = router.chrome(&json!({ "id": first, "error": { "message": "no" } })).unwrap();
    assert_eq!(to_client(&answer, 1), json!({ "id": 7, "error": { "message": "no" } }));
    assert_eq!(router.chrome(&json!({ "id": first, "result": {} })), None, "answered once");
}

#[test]
fn a_session_is_for_the_client_that_attached_it() {
    let mut router = router();
    router.attach(1, "S");
    let command = json!({ "id": 2, "method": "Page.enable", "sessionId": "S" });
    assert_eq!(to_chrome(&router.command(1, &command))["sessionId"], "S");
    let refused = to_client(&router.command(2, &command), 2);
    assert_eq!(refused["error"]["message"], "this session is none of yours");

    let crash = json!({ "method": "Inspector.targetCrashed", "params": {}, "sessionId": "S" });
    assert_eq!(to_client(&router.chrome(&crash).unwrap(), 1), crash);
    let noise = json!({ "method": "Page.frameNavigated", "params": {}, "sessionId": "S" });
    assert_eq!(router.chrome(&noise), None, "the bridge does not listen to it");
    let gone = json!({ "method": "Target.detachedFromTarget", "params": { "sessionId": "S" } });
    assert_eq!(to_client(&router.chrome(&gone).unwrap(), 1), gone);
    assert_eq!(router.chrome(&crash), None);
    assert!(matches!(router.command(1, &command), Delivery::ToClient(..)));
}

#[test]
fn a_client_that_goes_leaves_no_session_and_no_tab_behind() {
    let mut router = router();
    router.attach(1, "S");
    router.attach(2, "other");
    let attach =
        json!({ "id": 2, "method": "Target.attachToTarget", "params": { "targetId": "T" } });
    let attaching = to_chrome(&router.command(1, &attach))["id"].clone();
    let create =
        json!({ "id": 3, "method": "Target.createTarget", "params": { "url": "about:blank" } });
    let creating = to_chrome(&router.command(1, &create))["id"].clone();
    let left = router.remove_client(1);
    assert_eq!(left.len(), 1);
    let told = to_chrome(&left[0]);
    assert_eq!(
        (&told["method"], &told["params"]["sessionId"]),
        (&json!("Target.detachFromTarget"), &json!("S"))
    );
    let late = router.chrome(&json!({ "id": attaching, "result": { "sessionId": "late" } }));
    assert_eq!(to_chrome(&late.unwrap())["params"]["sessionId"], "late");
    let late = router.chrome(&json!({ "id": creating, "result": { "targetId": "N" } }));
    let told = to_chrome(&late.unwrap());
    assert_eq!(
        (&told["method"], &told["params"]["targetId"]),
        (&json!("Target.closeTarget"), &json!("N"))
    );
}

#[test]
fn one_client_cannot_fill_the_pipe() {
    let mut router = router();
    let ask = json!({ "id": 1, "method": "Browser.getVersion" });
    for _ in 0..MAX_PENDING {
        assert!(matches!(router.command(1, &ask), Delivery::ToChrome(_)));
    }
    let refused = to_client(&router.command(1, &ask), 1);
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("too many"), "{refused}");
    assert!(matches!(router.command(2, &ask), Delivery::ToChrome(_)), "others go on");
    assert!(router.chrome(&json!({ "id": 1, "result": {} })).is_some());
    assert!(matches!(router.command(1, &ask), Delivery::ToChrome(_)), "and so does it");
}

#[test]
fn an_answer_that_is_too_long_is_told_to_whoever_asked() {
    let mut router = router();
    let sent = to_chrome(&router.command(2, &json!({ "id": 9, "method": "Target.getTargets" })));
    let head = format!("{{\"id\":{},\"result\":{{\"x\":\"ああ", sent["id"]);
    // It was cut in the middle of a letter.
    let told = router.chrome_message_too_long(&head.as_bytes()[..head.len() - 1]).unwrap();
    assert_eq!(to_client(&told, 2)["error"]["message"], "the answer is too long");
    assert_eq!(to_client(&told, 2)["id"], 9);
    for nonsense in
        ["", "{\"id\":", "{\"id\":x", "{\"method\":\"x\"", "{\"id\":99999999999999999999,"]
    {
        assert_eq!(router.chrome_message_too_long(nonsense.as_bytes()), None, "{nonsense}");
    }
}

#[test]
fn what_is_no_command_is_none() {
    let mut router = router();
    let wrong = [
        "",
        "[]",
        "{}",
        r#"{"id":"1","method":"Browser.getVersion"}"#,
        r#"{"id":1}"#,
        r#"{"id":1,"method":"Browser.getVersion","more":1}"#,
        r#"{"id":1,"id":2,"method":"Browser.getVersion"}"#,
        "{\"id\":1,\"method\":\"Browser.getVersion\"}\n{}",
    ];
    for text in wrong {
        assert_eq!(router.client_message(1, text.as_bytes()), Err(NoCommand), "{text}");
    }
    let cookies = json!({ "id": 4, "method": "Storage.getCookies" });
    let refused = to_client(&router.command(1, &cookies), 1);
    let text = "Storage.getCookies is not allowed here";
    assert_eq!(refused, json!({ "id": 4, "error": { "code": -32_000, "message": text } }));
}
