use serde_json::json;

use super::*;

fn keys(operation: &ApiOperation) -> Vec<&str> {
    operation.input_schema["properties"].as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn names_that_clash_or_do_not_fit_are_changed_and_said() {
    let api = api(LIBRARY);
    let mut found = names(&api);
    found.sort_unstable();
    assert_eq!(found, ["hours", "post_loans", "readBook", "search", "write_book_"]);
    assert_eq!(api.base.as_str(), "https://tokyo.library.example/v2");
    assert_eq!(api.remarks.len(), 2, "{:?}", api.remarks);
    assert!(api.remarks[0].starts_with("GET /elsewhere is left out: its server https://other"));
    assert!(api.remarks[1].starts_with("POST /scans is left out: its body"), "{:?}", api.remarks);
    let read = operation(&api, "readBook");
    assert_eq!(keys(read), ["fields__", "filter", "id", "lang", "query_id", "title", "where"]);
    let said = &read.input_schema["properties"]["query_id"]["description"];
    assert_eq!(said, "The query parameter `id`. Of the reader");
    let write = operation(&api, "write_book_");
    assert_eq!(keys(write), ["body_id", "id", "kind", "name", "price", "title"]);
    let mut required = write.input_schema["required"].clone();
    required.as_array_mut().unwrap().sort_by_key(ToString::to_string);
    assert_eq!(required, json!(["id", "kind", "name", "title"]));
    let loan = operation(&api, "post_loans");
    assert_eq!(keys(loan), ["body"]);
    let choices = &loan.input_schema["properties"]["body"]["oneOf"];
    assert_eq!(choices[0], json!({ "$ref": "#/$defs/Named" }));
    for operation in &api.operations {
        // What models' APIs take: an object without choices at its top.
        assert_eq!(operation.input_schema["type"], "object");
        assert!(operation.input_schema.get("oneOf").is_none());
    }
}

#[test]
fn every_style_of_a_query_is_written() {
    let api = api(LIBRARY);
    let arguments = json!({
        "id": "棚 1", "title": "a/b?c#d", "query_id": 3, "fields__": ["x", "y&z"],
        "lang": ["ja", "en"], "filter": { "by": "me" }, "where": { "a": [1] },
    });
    let made = request(&api, "readBook", arguments).unwrap();
    let expected = "GET https://tokyo.library.example/v2/shelves/%E6%A3%9A%201/books/a%2Fb%3Fc%23d\
        ?id=3&fields%5B%5D=x&fields%5B%5D=y%26z&lang=ja%7Cen&filter%5Bby%5D=me\
        &where=%7B%22a%22%3A%5B1%5D%7D";
    assert_eq!(line(&made), expected);
    let form = request(&api, "search", json!({ "q": "犬 &猫", "tags": ["a", "b"] })).unwrap();
    assert_eq!(form.headers["Content-Type"], "application/x-www-form-urlencoded");
    assert_eq!(body(&form), "q=%E7%8A%AC%20%26%E7%8C%AB&tags=a&tags=b");
    // Nothing is said: there is no body, which need not be there.
    assert_eq!(request(&api, "search", json!({})).unwrap().body, None);
    let loan = request(&api, "post_loans", json!({ "body": { "number": 1 } })).unwrap();
    assert_eq!(loan.headers["Content-Type"], "application/vnd.library+json");
    assert_eq!(body(&loan), r#"{"number":1}"#);
}

#[test]
fn keys_are_sent_where_the_document_wants_them() {
    let api = api(LIBRARY);
    let headers = BTreeMap::from([
        ("Access_Key".to_owned(), "s&cret".to_owned()),
        ("X-Other".to_owned(), "1".to_owned()),
    ]);
    let made = operation(&api, "search").build_request(&json!({}), &headers).unwrap();
    assert_eq!(made.url, "https://tokyo.library.example/v2/search?access_key=s%26cret");
    let expected = BTreeMap::from([("X-Other".to_owned(), "1".to_owned())]);
    assert_eq!(made.headers, expected);
    // Where no key is wanted, none is shown.
    let open = operation(&api, "hours").build_request(&json!({}), &headers).unwrap();
    assert_eq!(
        (open.url.as_str(), open.headers),
        ("https://tokyo.library.example/v2/open", expected)
    );
    assert_eq!(api.missing_keys(std::iter::empty()), ["access_key"]);
}

#[test]
fn arguments_that_do_not_fit_are_told() {
    let api = api(LIBRARY);
    let cases = [
        ("readBook", json!([]), "must be an object"),
        ("readBook", json!({ "id": "a" }), "title is needed"),
        (
            "readBook",
            json!({ "id": "a", "title": "b", "page": 1 }),
            "there is no argument \"page\"",
        ),
        (
            "readBook",
            json!({ "id": "a", "title": "b", "query_id": "x" }),
            "query_id must be of type integer",
        ),
        (
            "readBook",
            json!({ "id": "a", "title": ["b"] }),
            "title must be of type string, not array",
        ),
        ("readBook", json!({ "id": "", "title": "b" }), "id must not be empty"),
        (
            "write_book_",
            json!({ "id": "a", "title": "b", "name": "n", "kind": "x" }),
            "kind must be one of",
        ),
        (
            "write_book_",
            json!({ "id": "a", "title": "b", "name": null, "kind": "詩" }),
            "name must be of type",
        ),
    ];
    for (name, arguments, says) in cases {
        let refused = request(&api, name, arguments.clone()).map(|made| line(&made)).unwrap_err();
        assert!(refused.contains(says), "{arguments}: {refused}");
    }
    // A number in a URL may be given as text, and the other way round.
    let made =
        request(&api, "readBook", json!({ "id": 7, "title": "b", "query_id": "3" })).unwrap();
    assert!(made.url.ends_with("/shelves/7/books/b?id=3"), "{}", made.url);
    let book = json!({ "id": "a", "title": "b", "name": "n", "kind": "詩", "price": null });
    let made = request(&api, "write_book_", book.clone()).unwrap();
    assert_eq!(body(&made), r#"{"kind":"詩","name":"n","price":null}"#);
    // Where null is no value, it says nothing.
    let mut book = book;
    book["body_id"] = Value::Null;
    let made = request(&api, "write_book_", book).unwrap();
    assert_eq!(body(&made), r#"{"kind":"詩","name":"n","price":null}"#);
}
