package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

// Schema creates what the functions of this package use. A token fits a signed 64-bit
// column. A cell that is bootstrapped again counts from the start, so its id is part of
// the key.
const Schema = `
CREATE TABLE IF NOT EXISTS jobs (
	id    INTEGER PRIMARY KEY,
	state TEXT   NOT NULL,
	token BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS fences (
	cell      TEXT   NOT NULL,
	path      TEXT   NOT NULL,
	token     BIGINT NOT NULL,
	sequencer TEXT   NOT NULL,
	PRIMARY KEY (cell, path)
);`

// SetState writes one row, unless a newer primary has written it: then the error is
// BadSequencer, and nothing has changed. The column has no cell id: set its tokens to 0
// after a cell was bootstrapped again.
func SetState(ctx context.Context, db *sql.DB, s sequencer.Sequencer, id int64, state string) error {
	result, err := db.ExecContext(ctx,
		`UPDATE jobs SET state = ?, token = ? WHERE id = ? AND token <= ?`, state, s.Token(), id, s.Token())
	if err != nil {
		return fmt.Errorf("set the state of job %d: %w", id, err)
	}
	if n, err := result.RowsAffected(); n == 1 || err != nil {
		return err
	}
	var newest uint64
	switch err := db.QueryRowContext(ctx, `SELECT token FROM jobs WHERE id = ?`, id).Scan(&newest); {
	case errors.Is(err, sql.ErrNoRows):
		return api.Errorf(api.NotFound, "there is no job %d", id)
	case err != nil:
		return fmt.Errorf("set the state of job %d: %w", id, err)
	}
	return sequencer.Stale(s, newest)
}

// InFence runs write in a transaction. It commits only if no newer primary has begun one,
// or was accepted by a Guard on the same table; else the error is BadSequencer. The fence is
// the transaction's first statement, so that transactions of one lock wait for each other
// from there on.
func InFence(ctx context.Context, db *sql.DB, s sequencer.Sequencer, write func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction of token %d: %w", s.Token(), err)
	}
	err = raise(ctx, tx, s)
	if err == nil {
		err = write(tx)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// querier is a database, or a transaction of it.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// raise makes s the newest sequencer of its lock, in one statement, unless there is a newer
// one.
func raise(ctx context.Context, q querier, s sequencer.Sequencer) error {
	result, err := q.ExecContext(ctx, `
		INSERT INTO fences (cell, path, token, sequencer) VALUES (?, ?, ?, ?)
		ON CONFLICT (cell, path) DO UPDATE SET token = excluded.token, sequencer = excluded.sequencer
		WHERE fences.token <= excluded.token`,
		string(s.Cell), s.Path.String(), s.Token(), s.String())
	if err != nil {
		return fmt.Errorf("compare token %d with the newest of %s: %w", s.Token(), s.Path, err)
	}
	if n, err := result.RowsAffected(); n == 1 || err != nil {
		return err
	}
	var newest uint64
	row := q.QueryRowContext(ctx, `SELECT token FROM fences WHERE cell = ? AND path = ?`, string(s.Cell), s.Path.String())
	if err := row.Scan(&newest); err != nil {
		return fmt.Errorf("compare token %d with the newest of %s: %w", s.Token(), s.Path, err)
	}
	return sequencer.Stale(s, newest)
}

// Store is a sequencer.Store in the table fences.
type Store struct{ DB *sql.DB }

// Load returns the newest sequencer of each lock.
func (s Store) Load(ctx context.Context) (all []sequencer.Sequencer, err error) {
	rows, err := s.DB.QueryContext(ctx, `SELECT sequencer FROM fences`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		one, err := sequencer.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("the table fences is damaged: %w", err)
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// Save makes newest the newest sequencer of its lock. It is durable when the database has
// committed.
func (s Store) Save(ctx context.Context, newest sequencer.Sequencer) error {
	return raise(ctx, s.DB, newest)
}
