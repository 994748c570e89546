package main

import (
	"errors"
	"fmt"
	"time"
)

// report prints what became of the mutants of a package, and returns an error if one survived that must
// not, or if a mark is stale.
func report(o options, p *sourcePackage, chosen []*mutant, took time.Duration) error {
	count := map[result]int{}
	failed := 0
	for _, m := range chosen {
		count[m.result]++
		switch {
		case m.result == killed:
			if o.verbose {
				fmt.Printf("%s/%v: killed by %s\n", p.path, m, m.killer)
			}
			continue
		case m.result == notRun:
			continue
		case m.same != nil:
			count["accepted"]++
			continue
		case m.mark != nil || m.result == survived && !o.tolerant:
			failed++
		}
		fmt.Printf("%s/%v: %s\n", p.path, m, m.result)
	}
	stale := o.staleMarks(p, chosen)
	for _, text := range stale {
		fmt.Println(text)
	}
	fmt.Printf("%s: %d mutants: %d killed, %d survived, %d not reached (%d of both accepted), %d not run; %.0f s\n",
		p.path, len(chosen), count[killed], count[survived], count[notReached], count["accepted"], count[notRun], took.Seconds())
	var errs []error
	if failed > 0 {
		errs = append(errs, fmt.Errorf("%s: no test notices %d mutants: write a test, or mark them", p.path, failed))
	}
	if len(stale) > 0 {
		errs = append(errs, fmt.Errorf("%s: %d marks are stale: remove them", p.path, len(stale)))
	}
	return errors.Join(errs...)
}

// staleMarks returns what is to be said of the marks all of whose mutants are killed. Of a mark some of
// whose mutants did not run, nothing is.
func (o options) staleMarks(p *sourcePackage, chosen []*mutant) (stale []string) {
	ran := map[*mutant]bool{}
	for _, m := range chosen {
		ran[m] = m.result != notRun
	}
	needed := map[*sameMark]bool{}
	for _, m := range p.mutants {
		if m.same != nil {
			needed[m.same] = needed[m.same] || !ran[m] || m.result != killed
		}
	}
	for _, f := range p.files {
		for _, mark := range f.marks.same {
			if need, has := needed[mark]; has && !need && (o.diff == "" || !mark.whole) {
				stale = append(stale, fmt.Sprintf("%s/%s:%d: the mark is stale: tests kill all its mutants", p.path, f.name, mark.line))
			}
		}
	}
	return stale
}
