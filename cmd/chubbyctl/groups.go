package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// meaningOf returns the command for another program's word, or "".
func meaningOf(word string) string {
	switch word {
	case "del", "delete", "remove", "unlink", "rmdir":
		return "'chubbyctl rm PATH' deletes a node"
	case "create", "new", "set", "write":
		return "'chubbyctl put PATH VALUE' writes a file, 'chubbyctl touch PATH' creates an empty one, and 'chubbyctl mkdir PATH' a directory"
	case "get", "read", "show":
		return "'chubbyctl cat PATH' writes a file to standard output, and 'chubbyctl stat PATH' says what is known of a node"
	case "replicas":
		return "'chubbyctl cell members' lists the replicas of a cell"
	case "member", "join", "announce", "presence":
		return "'chubbyctl members join PATH' puts a process on a list of members, 'chubbyctl members ls PATH' shows it, and 'chubbyctl cell members' lists the replicas of a cell"
	case "health", "status", "endpoint", "ping", "info":
		return "'chubbyctl cell status' shows how a cell and its replicas are"
	case "unlock", "release":
		return "a lock is released when the CMD of 'chubbyctl acquire PATH -- CMD' has ended; 'chubbyctl lock break PATH' takes one away from others"
	case "backup", "snapshot", "save", "dump":
		return "'chubbyctl cell backup FILE' takes a backup of a cell, and 'chubbyctl cp -r' copies a directory"
	case "restore":
		return "'chubbyctl cell restore FILE' replaces everything in a cell by a backup"
	case "mv", "move", "rename":
		return "there is no rename: locks and handles are of the node, and not of its name; 'chubbyctl cp -r SRC DST' copies, and 'chubbyctl rm -r SRC' deletes"
	case "who", "id", "login", "auth", "can-i":
		return "'chubbyctl whoami' shows whom a cell takes you for, and 'chubbyctl acl can ACT PATH' what you may do"
	case "use", "use-cell", "use-context", "context", "contexts", "cells":
		return "'chubbyctl config use-cell CELL' chooses the default cell, and 'chubbyctl config cells' lists those that are configured"
	case "events", "subscribe", "monitor", "tail":
		return "'chubbyctl watch PATH' prints what happens to a node, and 'chubbyctl top' what a cell does"
	case "failover", "stepdown", "step-down", "handover":
		return "'chubbyctl cell transfer' makes another replica the master, and 'chubbyctl drill failover' measures what that does"
	case "election", "campaign", "leader", "primary":
		return "'chubbyctl elect PATH --value V' takes part in an election, and 'chubbyctl elect --show PATH' prints who is the primary"
	case "enqueue", "dequeue", "push", "pop", "job", "jobs", "task", "tasks":
		return "'chubbyctl queue put PATH DATA' puts an item into a work queue, and 'chubbyctl queue take PATH -- CMD' runs a command on the next"
	case "transaction", "multi", "commit", "atomic", "cas":
		return "'chubbyctl txn' changes several files at one moment, on conditions; 'chubbyctl put --if-generation' one"
	case "kv", "key", "keys", "value":
		return "'chubbyctl cat PATH' writes a file to standard output, 'chubbyctl put PATH VALUE' writes one, and 'chubbyctl ls PATH' lists a directory"
	case "permit", "slots":
		return "'chubbyctl semaphore PATH --slots N -- CMD' runs a command that at most N run at a time"
	}
	return ""
}

// meaningBelow returns the command for a wrong word after a group of commands, or "". runs says whether a
// command follows after --.
func meaningBelow(group, word string, runs bool) string {
	switch group + " " + word {
	case "session rm", "session delete", "session kill", "session close", "session break":
		return "'chubbyctl session end ID' ends a session"
	case "members add", "members register", "members announce":
		return "'chubbyctl members join PATH -- CMD' is on a list of members while a command runs"
	case "cell top":
		return "'chubbyctl top' shows what a cell does, and 'chubbyctl cell status' how it is"
	case "lock ls", "lock list", "lock show":
		return "'chubbyctl locks' lists the locks that are held"
	}
	isPath := strings.Contains(word, "/")
	switch word {
	case "acquire", "take", "get", "hold", "run", "try":
		runs = true
	}
	if group == "lock" && (runs || isPath) {
		path := "PATH"
		if isPath {
			path = quoted(word)
		}
		return fmt.Sprintf("'chubbyctl acquire %s -- CMD' takes a lock, and runs a command while it is held", path)
	}
	return ""
}

// The topics of help that are no commands.
const (
	topicExitCodes   = "exit-codes"
	topicEnvironment = "environment"
)

func helpTopics() []string { return []string{topicExitCodes, topicEnvironment} }

// newHelpCommand is cobra's help command, except that it fails for an unknown command.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command, about exit-codes, or about the environment",
		ValidArgsFunction: func(_ *cobra.Command, args []string, half string) ([]string, cobra.ShellCompDirective) {
			names := slices.Clone(helpTopics())
			if len(args) > 0 {
				names = nil
			}
			if cmd, rest, err := root.Find(args); err == nil && len(rest) == 0 {
				for _, one := range cmd.Commands() {
					if one.IsAvailableCommand() {
						names = append(names, one.Name()+"\t"+one.Short)
					}
				}
			}
			return withPrefix(half, names), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(help *cobra.Command, args []string) error {
			if len(args) == 1 && slices.Contains(helpTopics(), args[0]) {
				about := exitCodes()
				if args[0] == topicEnvironment {
					about = environment()
				}
				_, err := fmt.Fprint(help.OutOrStdout(), glossary(about))
				return err
			}
			cmd, rest, err := root.Find(args)
			if err != nil {
				return usagef("%v", err)
			}
			if len(rest) > 0 {
				return needsVerb(cmd, rest)
			}
			cmd.InitDefaultHelpFlag() // help lists the flag --help
			return cmd.Help()
		},
	}
}

// needsVerb is the action of a command that only groups others. People see its help; programs, which expect
// objects, get an error with the commands.
func needsVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && term.Format(cmd.Flag("output").Value.String()).ForPrograms() {
		var names []string
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() {
				names = append(names, child.Name())
			}
		}
		return usagef("%s needs one of the commands %s", cmd.CommandPath(), strings.Join(names, ", "))
	}
	if len(args) == 0 {
		if err := cmd.Help(); err != nil {
			return err
		}
		return usagef("%s needs one of the commands above", cmd.CommandPath())
	}
	advice := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	where, meant := "", meaningOf(args[0])
	if cmd.HasParent() {
		group := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		where, meant = group+": ", meaningBelow(group, args[0], cmd.ArgsLenAtDash() >= 0)
	}
	if near := cmd.SuggestionsFor(args[0]); meant != "" {
		advice = meant
	} else if len(near) > 0 {
		advice = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("%sthere is no command %q; %s", where, args[0], advice)
}
