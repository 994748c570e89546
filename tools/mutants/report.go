package main

import (
	"errors"
	"fmt"
	"time"
)

// report prints what became of the chosen mutants of a package, and returns an error if one survived that must
// not, if one could not be judged, or if a mark is stale.
func (o options) report(p *sourcePackage, took time.Duration) error {
	count := map[result]int{}
	unnoticed := 0
	for _, m := range p.chosen {
		count[m.result]++
		switch {
		case m.result == killed:
			if o.verbose {
				fmt.Printf("%s/%v: killed by %s\n", p.path, m, m.killer)
			}
			continue
		case m.result == notRun:
			continue
		case m.result == notJudged: // it has a count of its own
		case m.same != nil:
			count["accepted"]++
			continue
		case m.mark != nil || m.result == survived && !o.tolerant:
			unnoticed++
		}
		fmt.Printf("%s/%v: %s\n", p.path, m, m.result)
	}
	stale := o.staleMarks(p)
	for _, text := range stale {
		fmt.Println(text)
	}
	fmt.Printf("%s: %d mutants: %d killed, %d survived, %d not reached (%d of both accepted), %d not judged, %d not run; %.0f s\n", p.path, len(p.chosen),
		count[killed], count[survived], count[notReached], count["accepted"], count[notJudged], count[notRun], took.Seconds())
	var errs []error
	fail := func(n int, format string) {
		if n > 0 {
			errs = append(errs, fmt.Errorf("%s: "+format, p.path, n))
		}
	}
	fail(unnoticed, "no test notices %d mutants: write a test, or mark them")
	fail(count[notJudged], "%d mutants are not judged: the tests that reach them fail without a mutant")
	fail(len(stale), "%d marks are stale: remove them")
	return errors.Join(errs...)
}

// staleMarks returns what is to be said of the marks all of whose mutants are killed. Of a mark some of
// whose mutants did not run, nothing is.
func (o options) staleMarks(p *sourcePackage) (stale []string) {
	needed := map[*sameMark]bool{}
	for _, m := range p.mutants {
		if m.same != nil {
			needed[m.same] = needed[m.same] || m.result != killed
		}
	}
	for _, f := range p.files {
		for _, mark := range f.marks.same {
			if need, has := needed[mark]; has && !need && !(o.changed && mark.whole) {
				stale = append(stale, fmt.Sprintf("%s/%s:%d: the mark is stale: tests kill all its mutants", p.path, f.name, mark.line))
			}
		}
	}
	return stale
}
