use super::*;

fn converted(root: &Value, is_old: bool) -> Result<(Value, Map<String, Value>), ApiDocumentError> {
    let mut schemas = SchemaConverter::new(RefResolver { root, is_old });
    let schema = schemas.convert(&root["it"], "it")?;
    Ok((schema, schemas.definitions()?))
}

#[test]
fn what_the_older_version_says_is_said_as_the_newer_one_does() {
    let cases = [
        (json!({ "type": "string", "nullable": true }), json!({ "type": ["string", "null"] })),
        (
            json!({ "type": "string", "nullable": true, "enum": ["a", "b"], "example": "a" }),
            json!({ "type": ["string", "null"], "enum": ["a", "b", null] }),
        ),
        (
            json!({ "minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false }),
            json!({ "exclusiveMinimum": 1, "maximum": 9 }),
        ),
        (
            json!({ "nullable": true, "oneOf": [{ "type": "string" }], "discriminator": {} }),
            json!({ "oneOf": [{ "type": "string" }, { "type": "null" }] }),
        ),
        (
            json!({ "nullable": true, "allOf": [{ "type": "object" }] }),
            json!({ "anyOf": [{ "allOf": [{ "type": "object" }] }, { "type": "null" }] }),
        ),
        (
            json!({ "type": "object", "required": ["id", "name"], "xml": { "name": "x" },
                "properties": { "id": { "readOnly": true }, "name": { "type": "string" } } }),
            json!({ "type": "object", "required": ["name"],
                "properties": { "name": { "type": "string" } } }),
        ),
    ];
    for (old, new) in cases {
        let (schema, _) = converted(&json!({ "it": old }), true).unwrap();
        assert_eq!(schema, new, "{old}");
    }
    // In the newer version these words mean nothing, or something else.
    let (schema, _) =
        converted(&json!({ "it": { "nullable": true, "exclusiveMinimum": 1 } }), false).unwrap();
    assert_eq!(schema, json!({ "exclusiveMinimum": 1 }));
}

#[test]
fn references_stand_beside_the_schema_also_when_they_go_in_circles() {
    let root = json!({
        "it": { "items": { "$ref": "#/components/schemas/Node" } },
        "components": { "schemas": { "Node": { "type": "object", "properties": {
            "next": { "$ref": "#/components/schemas/Node", "description": "次" },
            "kind": { "$ref": "#/components/schemas/a~1b" } } },
            "a/b": { "enum": ["x"] } } },
    });
    let (schema, definitions) = converted(&root, false).unwrap();
    assert_eq!(schema, json!({ "items": { "$ref": "#/$defs/Node" } }));
    let expected = json!({ "a_1b": { "enum": ["x"] }, "Node": { "type": "object", "properties": {
        "next": { "$ref": "#/$defs/Node", "description": "次" }, "kind": { "$ref": "#/$defs/a_1b" } } } });
    assert_eq!(Value::Object(definitions), expected);
}

#[test]
fn references_that_lead_out_or_nowhere_are_refused() {
    for (to, says) in [
        ("https://evil.test/a.json", "leads out of the document"),
        ("other.yaml#/a", "leads out of the document"),
        ("/etc/passwd", "leads out of the document"),
        ("#/nothing", "leads nowhere"),
    ] {
        let refused = converted(&json!({ "it": { "items": { "$ref": to } } }), false).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.starts_with("it/items: ") && refused.contains(says), "{refused}");
    }
    let root = json!({ "it": { "$ref": "#/it" } });
    let parts = RefResolver { root: &root, is_old: false };
    let refused = parts.resolve(&root["it"], "it").unwrap_err().to_string();
    assert!(refused.contains("more than 16"), "{refused}");
}

#[test]
fn what_doubles_at_every_step_does_not_grow_and_what_is_large_is_left_open() {
    let mut schemas = Map::new();
    for level in 0..30 {
        let next = json!({ "$ref": format!("#/s/L{}", level + 1) });
        let fields = json!({ "properties": { "a": next, "b": next } });
        schemas.insert(format!("L{level}"), fields);
    }
    schemas.insert("L30".to_owned(), json!({ "type": "string" }));
    let root = json!({ "it": { "$ref": "#/s/L0" }, "s": schemas });
    let (_, definitions) = converted(&root, false).unwrap();
    assert_eq!(definitions.len(), 31);
    // A long chain of large ones.
    let mut schemas = Map::new();
    for level in 0..100 {
        let words: Vec<_> = (0..200).collect();
        let next = json!({ "$ref": format!("#/s/L{}", level + 1) });
        schemas.insert(format!("L{level}"), json!({ "enum": words, "items": next }));
    }
    schemas.insert("L100".to_owned(), json!({ "type": "string" }));
    let root = json!({ "it": { "$ref": "#/s/L0" }, "s": schemas });
    let (_, definitions) = converted(&root, false).unwrap();
    assert!(definitions.len() < 30, "{}", definitions.len());
    let text = Value::Object(definitions).to_string();
    assert!(text.contains("too large to be shown"), "{}", text.len());
}
