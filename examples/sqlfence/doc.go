// Package sqlfence shows a SQL database that keeps stale primaries out by
// itself: it compares their tokens in the transaction that writes (Chubby §2.4,
// "Check or Do" in package sequencer). It is an example to copy, and uses database/sql
// alone. The statements are those of SQLite and PostgreSQL (with $1, $2, … for ?). MySQL
// needs clientFoundRows: without it, it counts only rows that have changed.
//
// There are two patterns, and a Store beside them:
//
//   - SetState has a token in each row: a statement of a primary that was
//     replaced changes no row that a newer one has written. Rows that the newer
//     one has not written are still open to it. That is enough if each row is
//     right or wrong by itself.
//   - InFence has a token for the whole lock, in the table fences: as soon as
//     the newer one has written, no transaction of an older one is committed,
//     also of other rows.
//   - Store makes that table the memory of a sequencer.Guard, in place of a file.
//     Several servers may have theirs in one table; each looks there only when a
//     token is new to it, so between servers it is InFence that decides.
//
// The functions may be called from several goroutines.
package sqlfence
