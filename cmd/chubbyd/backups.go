package main

import (
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/internal/backupstore"
)

// The defaults of scheduled backups: a week of them.
const (
	defaultBackupEvery = 6 * time.Hour
	defaultBackupKeep  = 28
)

func backupKeys() []key {
	return []key{
		{"backup-to", "where the master puts a backup from time to time: a directory, or s3://BUCKET/PREFIX?endpoint=https://HOST&region=NAME", special("none, an absolute path, or s3://...", none, setBackupTo, none)},
		{"backup-every", "how often, 1m to 720h", duration(cell.MinBackupEvery, cell.MaxBackupEvery, func(s *settings) *time.Duration { return &s.replica.Backups.Every })},
		{"backup-keep", "how many of them stay", count(1, cell.MaxBackupKeep, func(s *settings) *int { return &s.replica.Backups.Keep })},
	}
}

func setBackupTo(s *settings, text string) error {
	if text == none {
		s.replica.Backups.Place = nil
		return nil
	}
	place, err := backupstore.At(text)
	if err != nil {
		return err
	}
	s.replica.Backups.Place = place
	return nil
}
