package main

import (
	"strings"
	"testing"
	"time"
)

// offered returns what Tab offers for a half-written command line, without the explanations, and how it
// goes on: ":4" offers no files, ":6" adds no space either.
func (s *stage) offered(line string) string {
	var list []string
	for entry := range strings.Lines(s.run("__complete " + line)) {
		entry, _, _ = strings.Cut(strings.TrimSpace(entry), "\t")
		if strings.HasPrefix(entry, "Completion ended") {
			continue
		}
		list = append(list, entry)
	}
	return strings.Join(list, " ")
}

func TestCompletionOffers(t *testing.T) {
	t.Setenv("CHUBBY_CELLS", "local=h:1;zoo=h:2")
	t.Setenv("CHUBBY_SEQUENCER", "chubby1:mine")
	onStage(t, func(t *testing.T, s *stage) {
		other := s.cell.Client("other")
		s.run("mkdir /ls/local/dir")
		s.run("put /ls/local/dir/file x")
		s.run("put /ls/local/file x")
		for line, want := range map[string]string{
			"cat di":                             "dir/ :6",
			"cat dir/f":                          "dir/file :4",
			"cat /dir/":                          "/dir/file :4",
			"cat ''":                             "/ls/local/ /ls/zoo/ :6",
			"session end ''":                     other.Session().String() + " :4",
			"whoami ''":                          "local zoo :4",
			"acl can ''":                         "read write lock delete create change :4",
			"acl can lock /ls/local/d":           "/ls/local/dir/ :6",
			"--cell z":                           "zoo :4",
			"cat /ls/lo":                         "/ls/local/ :6",
			"cat /l":                             "/ls/local/ /ls/zoo/ :6",
			"cat /ls/local/":                     "/ls/local/acl/ /ls/local/dir/ /ls/local/file :6",
			"cat /ls/local/d":                    "/ls/local/dir/ :6",
			"cat /ls/local/dir/":                 "/ls/local/dir/file :4",
			"cat /ls/local/file /ls/loca":        "/ls/local/ :6", // one more may follow
			"cat /ls/local/nothing":              ":6",
			"stat /ls/local/file/":               ":4",
			"put /ls/local/file ''":              ":4", // a value
			"cp /ls/local/file /ls/local/dir/f":  "/ls/local/dir/file :4",
			"cp a b ''":                          ":4",
			"acquire /ls/local/file ''":          ":0", // a program
			"watch /ls/local/file --events lock": "lock-acquired lock-vacant :6",
			"watch /ls/local/file --events lock-vacant,lock": "lock-vacant,lock-acquired :6",
			"acquire --jeopardy-signal USR":                  "USR1 USR2 :4",
			"-o ''":                                          "text wide json yaml :4",
			"cell status ''":                                 "local zoo :4",
			"cell transfer --to ''":                          "r1 :4",
			"sequencer check ''":                             "chubby1:mine :4",
			"txn --put di":                                   "dir/ :6",
			"txn --put dir/f":                                "dir/file= :6", // the value follows
			"txn --put dir/file=":                            ":4",
			"txn --if-generation dir/f":                      "dir/file= :6",
			"txn --put x=y --rm dir/f":                       "dir/file :4",
			"txn --if-absent /ls/lo":                         "/ls/local/ :6",
			"txn --if-sequencer ''":                          "chubby1:mine :4",
			"txn ''":                                         ":4",
			"put x y --if-sequencer ''":                      "chubby1:mine :4",
			"acl file cat ''":                                "everyone :4",
			"acl set /ls/local --read ''":                    "everyone :4",
			"quota set --dir /ls/local/d":                    "/ls/local/dir/ :6",
			"ls --timeout ''":                                ":4",
			"bench ''":                                       "cached locks reads sessions writes :4",
			"completion ''":                                  "bash fish powershell zsh :4",
			"nonsense ''":                                    ":4",
		} {
			if got := s.offered(line); got != want {
				t.Errorf("behind %q it offers %q, want %q", line, got, want)
			}
		}
	})
}

// If the cell does not answer, Tab takes a second or two.
func TestCompletionDoesNotWait(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.cell.Kill("r1")
		for _, line := range []string{"cat /ls/local/", "session show ''", "cell transfer --to ''", "acl file cat ''", "quota set --principal ''"} {
			begun := time.Now()
			if got := s.offered(line); got != ":4" {
				t.Errorf("behind %q it offers %q without a cell", line, got)
			}
			if took := time.Since(begun); took > 2*completionBound {
				t.Errorf("behind %q it took %v", line, took)
			}
		}
	})
}
