package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/sequencer"
)

// sequencerCondition is the flag --if-sequencer: nothing is done unless the
// lock that a sequencer speaks of is still held in that generation.
type sequencerCondition struct {
	text  string
	given bool // also if the text is empty, as an unset variable is
}

func (s *sequencerCondition) flag(cmd *cobra.Command, does string) {
	cmd.Flags().StringVar(&s.text, "if-sequencer", "", does+" only if the sequencer `SEQ` is valid: its lock is still held")
}

// options returns what makes a change depend on the sequencer. Text that is no
// sequencer is one that is not valid, and says so before anything is sent.
func (s *sequencerCondition) options(cmd *cobra.Command) ([]client.WriteOption, error) {
	if s.given = cmd.Flags().Changed("if-sequencer"); !s.given {
		return nil, nil
	}
	seq, err := sequencer.Parse(s.text)
	if err != nil {
		return nil, s.exitCodeOf(fmt.Errorf("--if-sequencer: %w", err))
	}
	return []client.WriteOption{client.IfSequencer(seq)}, nil
}

// exitCodeOf gives the refusal of a sequencer its exit code.
func (s *sequencerCondition) exitCodeOf(err error) error {
	if s.given && api.CodeOf(err) == api.BadSequencer {
		return &exitError{exitMismatch, err}
	}
	return err
}
