package main

import (
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
)

// entry is a word and its meaning, for help and the reference pages.
type entry struct{ word, meaning string }

func exitCodes() []entry {
	code := func(n int, meaning string) entry { return entry{fmt.Sprint(n), meaning} }
	return []entry{
		code(0, "done"),
		code(exitFailed, "any other failure"),
		code(exitUsage, "the command line was not understood, or --yes is missing"),
		code(exitMismatch, "a sequencer is not valid (sequencer check, --if-sequencer), or something is at another generation, or there already (--if-generation, --if-absent, txn); or lint has found something"),
		code(exitOverLimit, "drill: what it measured was longer than --limit"),
		code(exitUnavailable, "no master of the cell was reached within --timeout, or it is of an older version, which does not know what was asked for; nothing was changed"),
		code(exitLost, "the lock was lost while CMD ran, and CMD was stopped"),
		code(exitHeld, "--try: the lock is held by another, or delayed; --detect-deadlock: a deadlock"),
		code(exitUncertain, "no answer came within --timeout, and the change may or may not have been made, or a part of it was; 69 says that nothing was changed"),
		code(exitDenied, "permission denied"),
		code(exitWaited, "--wait ran out"),
		{fmt.Sprintf("%d, %d", supervise.ExitNotRunnable, supervise.ExitNotFound), "CMD could not be run, or was not found"},
		{fmt.Sprintf("%d+n", exitBySignal), "ended by signal n: CMD, or chubbyctl itself; 141 is also that nobody reads any more what it prints"},
		{"other", "CMD's own, if it ran to its end while the lock was held"},
	}
}

// environment lists the variables that chubbyctl reads, and those it sets for commands.
func environment() []entry {
	return []entry{
		{"CHUBBY_CELLS", `where cells are: "foo=h1:7421,h2:7421;bar=h3:7421"`},
		{"CHUBBY_CELL", "the default cell, as --cell"},
		{"CHUBBY_CONFIG", "the file that says where cells are, instead of ~/.config/chubby/cells.yaml"},
		{"CHUBBY_CACERT, CHUBBY_CERT, CHUBBY_KEY", "files of certificates, as --cacert, --cert and --key; cells.yaml may name them for each cell, too"},
		{"CHUBBY_TOKEN_FILE", "a file with a token, as --token-file; cells.yaml may name it, too"},
		{"CHUBBY_DOMAIN", "the domain in whose DNS cells are looked up, as _chubby._tcp.<cell>.<domain>"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "as --trace-endpoint, if it is for gRPC; OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE and their like say the rest"},
		{"NO_COLOR", "no colours if it is not empty; there are none in a pipe, nor with TERM=dumb"},
		{"CHUBBY_LOCK, CHUBBY_SEQUENCER, CHUBBY_TOKEN, CHUBBY_SESSION", "what a command that runs under a lock is told of it; see acquire. CHUBBY_TOKEN is its fencing token, and no secret: chubbyctl does not read it; the token that says who you are is in CHUBBY_TOKEN_FILE"},
		{"CHUBBY_SLOT, CHUBBY_MEMBER", "what a command is told of its slot (semaphore), and of its membership (members join)"},
		{"CHUBBY_EVENT, CHUBBY_PATH, CHUBBY_CHILD, CHUBBY_GENERATION", "what watch --exec tells its command"},
	}
}

func glossary(terms []entry) string {
	const wide = 13
	var b strings.Builder
	for _, t := range terms {
		first := fmt.Sprintf("  %-*s  ", wide, t.word)
		if len(t.word) > wide {
			b.WriteString("  " + t.word + "\n")
			first = strings.Repeat(" ", wide+4)
		}
		b.WriteString(term.Style{Width: 80}.Wrap(t.meaning, first) + "\n")
	}
	return b.String()
}
