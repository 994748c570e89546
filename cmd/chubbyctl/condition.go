package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// sequencerCondition is the flag --if-sequencer: it requires that the sequencer's lock is still held in its
// generation.
type sequencerCondition struct {
	text  string
	given bool // also with an empty text, as from an unset variable
}

func (s *sequencerCondition) flag(cmd *cobra.Command, does string) {
	cmd.Flags().StringVar(&s.text, "if-sequencer", "", does+" only if the sequencer `SEQ` is valid: its lock is still held")
}

// parse returns the sequencer, or nil without the flag. It rejects text that is no sequencer like an invalid
// one, before anything is sent.
func (s *sequencerCondition) parse(cmd *cobra.Command) (*sequencer.Sequencer, error) {
	if s.given = cmd.Flags().Changed("if-sequencer"); !s.given {
		return nil, nil
	}
	seq, err := sequencer.Parse(s.text)
	if err != nil {
		return nil, s.exitCodeOf(fmt.Errorf("--if-sequencer: %w", err))
	}
	return &seq, nil
}

// options returns the options that make a change depend on the sequencer.
func (s *sequencerCondition) options(cmd *cobra.Command) ([]client.WriteOption, error) {
	seq, err := s.parse(cmd)
	if seq == nil {
		return nil, err
	}
	return []client.WriteOption{client.IfSequencer(*seq)}, nil
}

func (s *sequencerCondition) exitCodeOf(err error) error {
	if s.given && api.CodeOf(err) == api.BadSequencer {
		return &exitError{exitMismatch, err}
	}
	return err
}
