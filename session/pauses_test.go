package session_test

import (
	"testing"
	"time"

	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
)

// Looks that are not late find no pause, and one that is late finds all of it.
func TestLateLookIsAPause(t *testing.T) {
	p := session.NewPauses(at(0))
	p.Look(at(0.25))
	if forgiven := p.Take(); forgiven != 0 {
		t.Errorf("a look after exactly MaxTick: %v forgiven", forgiven)
	}
	p.Look(at(10.25))
	if forgiven := p.Take(); forgiven != 10*time.Second {
		t.Errorf("a look after 10 s: %v forgiven, want 10 s", forgiven)
	}
	if forgiven := p.Take(); forgiven != 0 {
		t.Errorf("%v forgiven twice", forgiven)
	}
	p.Look(at(10))
	if forgiven := p.Take(); forgiven != 0 {
		t.Errorf("a clock that went back: %v forgiven", forgiven)
	}
}

// Nobody needs to take what was found before the next pause.
func TestPausesAddUp(t *testing.T) {
	p := session.NewPauses(at(0))
	for _, now := range []float64{1, 1.1, 3, 3.2} {
		p.Look(at(now))
	}
	if forgiven, want := p.Take(), 2900*time.Millisecond; forgiven != want {
		t.Errorf("%v forgiven, want %v", forgiven, want)
	}
}

// A process that is always late is forgiven a limited time.
func TestPatienceEnds(t *testing.T) {
	p := session.NewPauses(at(0))
	now, forgiven := at(0), time.Duration(0)
	for range 2000 {
		now = now.Add(2 * session.MaxTick)
		p.Look(now)
		forgiven += p.Take()
	}
	if forgiven != session.MaxPatience {
		t.Errorf("%v was forgiven, want %v", forgiven, session.MaxPatience)
	}
}

// Time without pauses restores the budget.
func TestPatienceIsEarnedBack(t *testing.T) {
	p := session.NewPauses(at(0))
	now := at(0).Add(session.MaxPatience)
	p.Look(now)
	for range 8 {
		now = now.Add(session.MaxTick / 2)
		p.Look(now)
	}
	p.Take()
	p.Look(now.Add(session.MaxPatience))
	if forgiven := p.Take(); forgiven != 4*session.MaxTick {
		t.Errorf("%v was forgiven after %v without pauses", forgiven, 4*session.MaxTick)
	}
}

// A machine that was suspended for an hour, or a clock that is an hour ahead, is forgiven the hour, however often it happens.
func TestLongPauseIsForgivenWhole(t *testing.T) {
	p := session.NewPauses(at(0))
	now := at(0)
	for range 5 {
		now = now.Add(time.Hour)
		p.Look(now)
		if forgiven := p.Take(); forgiven != time.Hour {
			t.Fatalf("%v was forgiven", forgiven)
		}
	}
}

// TestPausesAreBounded compares what is forgiven with the promise: all of long pauses, and of the others MaxPatience and what
// was restored; and never more than there was.
func TestPausesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := session.Instant(rapid.Int64Range(-1e9, 1e9).Draw(t, "origin"))
		p := session.NewPauses(now)
		var long, short, ran, forgiven time.Duration
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			gap := time.Duration(rapid.Int64Range(0, int64(2*session.MaxTick)).Draw(t, "gap"))
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0:
				gap *= 200
			case 1:
				gap += session.MaxPatience
			}
			switch now = now.Add(gap); {
			case gap > session.MaxPatience:
				long += gap
			case gap > session.MaxTick:
				short += gap
			default:
				ran += gap
			}
			p.Look(now)
			if rapid.Bool().Draw(t, "take") {
				forgiven += p.Take()
			}
		}
		forgiven += p.Take()
		if least, most := long+min(short, session.MaxPatience), long+min(short, session.MaxPatience+ran); forgiven < least || forgiven > most {
			t.Fatalf("%v was forgiven, want %v to %v", forgiven, least, most)
		}
	})
}
