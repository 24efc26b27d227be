//! Totals. Only one writer writes at a time, so each has one row, in slot 0.

use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use shikiri_model::time::Timestamp;
use shikiri_model::total::{StoredTotal, TotalKey, TotalNote, TotalQuery, TotalValue};

use super::reader_pool::SqliteReadError;
use crate::batch_decision::{BatchNeeds, LoadedRows};

pub(super) fn load_totals(
    connection: &Connection,
    needs: &BatchNeeds<'_>,
    loaded: &mut LoadedRows,
) -> Result<()> {
    for key in needs.total_keys(&loaded.records) {
        let mut select = connection.prepare_cached(
            "SELECT period, name, amounts, noted_at, note FROM totals
             WHERE kind = ?1 AND tenant = ?2 AND period = ?3 AND name = ?4 AND slot = 0",
        )?;
        let found = select
            .query_row(params![key.kind, key.tenant.as_str(), key.period, key.name], total)
            .optional()?;
        if let Some(total) = found {
            loaded.totals.insert(key, total.value);
        }
    }
    Ok(())
}

pub(super) fn write_totals(
    connection: &Connection,
    totals: &[(TotalKey, TotalValue)],
) -> Result<()> {
    if totals.is_empty() {
        return Ok(());
    }
    let mut upsert = connection.prepare_cached(
        "INSERT INTO totals (kind, tenant, period, name, slot, amounts, noted_at, note)
         VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7)
         ON CONFLICT (kind, tenant, period, name, slot) DO UPDATE SET
             amounts = excluded.amounts, noted_at = excluded.noted_at, note = excluded.note",
    )?;
    for (key, value) in totals {
        let note = value.latest.as_ref();
        upsert.execute(params![
            key.kind,
            key.tenant.as_str(),
            key.period,
            key.name,
            value.encode_amounts(),
            note.map(|note| note.at.as_millis()),
            note.map(|note| &note.text),
        ])?;
    }
    Ok(())
}

pub(super) fn totals(
    connection: &Connection,
    query: &TotalQuery,
) -> std::result::Result<Vec<StoredTotal>, SqliteReadError> {
    let mut sql = String::from(
        "SELECT period, name, amounts, noted_at, note FROM totals
         WHERE kind = ?1 AND tenant = ?2 AND period >= ?3",
    );
    let mut values = vec![query.kind, query.tenant.as_str(), &query.from];
    if let Some(to) = &query.to {
        sql.push_str(" AND period < ?4");
        values.push(to);
    }
    sql.push_str(" ORDER BY period, name, slot");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map(rusqlite::params_from_iter(values), total)?;
    Ok(rows.collect::<Result<_>>()?)
}

/// Columns: period, name, amounts, noted_at, note.
fn total(row: &Row<'_>) -> Result<StoredTotal> {
    let amounts = TotalValue::decode_amounts(row.get_ref(2)?.as_str()?).ok_or_else(|| {
        rusqlite::Error::FromSqlConversionFailure(
            2,
            rusqlite::types::Type::Text,
            "not a list of amounts".into(),
        )
    })?;
    let noted_at = row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis);
    let latest = noted_at.zip(row.get(4)?).map(|(at, text)| TotalNote { at, text });
    Ok(StoredTotal {
        period: row.get(0)?,
        name: row.get(1)?,
        value: TotalValue { amounts, latest },
    })
}
