package sequencer_test

import (
	"context"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
)

func BenchmarkGuardCheck(b *testing.B) {
	guard := newGuard(b, sequencer.GuardConfig{Prefix: api.MustParsePath("/ls/foo/svc")})
	text := of(primary, 57).String()
	accept(b, guard, of(primary, 57))
	ctx := b.Context()
	b.Run("case=newest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := guard.Check(ctx, text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("case=newest-parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := guard.Check(ctx, text); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("case=stale", func(b *testing.B) {
		old := of(primary, 41).String()
		for b.Loop() {
			if _, err := guard.Check(ctx, old); err == nil {
				b.Fatal("accepted")
			}
		}
	})
}

func BenchmarkGuardDo(b *testing.B) {
	guard := newGuard(b, sequencer.GuardConfig{})
	text := of(primary, 57).String()
	b.ReportAllocs()
	for b.Loop() {
		if err := guard.Do(b.Context(), text, func(context.Context) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := of(primary, 57).String()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sequencer.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
