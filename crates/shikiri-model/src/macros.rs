//! Macros for code that every record and every stored enum repeats.

/// Declares an enum whose variants are stored and shown as fixed texts. The texts serve serde,
/// `as_str` and `parse` alike, so they cannot differ.
macro_rules! text_enum {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// The text that is stored and shown.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// The variant of a stored text.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|variant| variant.as_str() == text)
            }
        }
    };
}

/// Declares an enum of names that callers see, such as error codes. Its comments are shown to users as
/// well: the reference pages are made of them. The first paragraph above a name says what it means, the
/// second one more: the fields of an event, or what to do about a failure.
#[macro_export]
macro_rules! documented_enum {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[doc = $doc:literal])+ $variant:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $name {
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// The name that callers see.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// The name's comment: what it means, then an empty line and more about it.
            pub fn comment(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc, "\n"),+),)+
                }
            }
        }
    };
}

/// Implements [`Document`](crate::record::Document): the type, its kind, the field with its tenant
/// (or `system`), the field with its id, and its searched columns where it has some.
macro_rules! document {
    ($type:ty, $kind:literal, $tenant:ident, $id:ident) => {
        document!($type, $kind, $tenant, $id, |_document| Default::default());
    };
    ($type:ty, $kind:literal, $tenant:ident, $id:ident, |$this:ident| $columns:expr) => {
        impl crate::record::Document for $type {
            const KIND: &'static str = $kind;

            fn tenant(&self) -> crate::ids::TenantId {
                document!(@tenant self, $tenant)
            }

            fn id(&self) -> &str {
                self.$id.as_str()
            }

            fn columns(&self) -> crate::record::RecordColumns {
                let $this = self;
                $columns
            }
        }
    };
    (@tenant $this:ident, system) => {
        crate::ids::TenantId::system()
    };
    (@tenant $this:ident, $field:ident) => {
        $this.$field.clone()
    };
}

pub(crate) use {document, text_enum};

#[cfg(test)]
mod tests {
    use crate::models::EngineKind;

    #[test]
    fn text_enums_store_show_and_parse_the_same_text() {
        assert!(EngineKind::ALL.contains(&EngineKind::Offline));
        for kind in EngineKind::ALL {
            assert_eq!(EngineKind::parse(kind.as_str()), Some(kind));
            let stored = serde_json::to_value(kind).unwrap();
            assert_eq!(stored, kind.as_str());
            assert_eq!(serde_json::from_value::<EngineKind>(stored).unwrap(), kind);
        }
        assert_eq!(EngineKind::parse("Offline"), None);
    }
}
