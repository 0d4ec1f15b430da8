package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Texts are rules as users write them. An empty text says nothing.
type Texts struct {
	// Hard and Soft are lists such as memory.available<100Mi,nodefs.available<10%.
	Hard, Soft string
	// SoftGrace is a list such as memory.available=1m30s, with every signal of Soft.
	SoftGrace string
	// Reclaim is a list such as nodefs.available=500Mi,imagefs.available=5%.
	Reclaim string
}

// ParseRules reads rules. Its errors name the flag that is wrong.
func ParseRules(t Texts) (r Rules, err error) {
	r.Hard, err = Parse(t.Hard)
	if err != nil {
		return r, fmt.Errorf("--eviction-hard: %w", err)
	}
	if t.Soft != "" {
		r.Soft, err = Parse(t.Soft)
		if err != nil {
			return r, fmt.Errorf("--eviction-soft: %w", err)
		}
	}
	r.SoftGrace = map[Signal]time.Duration{}
	err = each(t.SoftGrace, func(s Signal, value string) (err error) {
		r.SoftGrace[s], err = time.ParseDuration(value)
		if err != nil || r.SoftGrace[s] < 0 {
			return fmt.Errorf("%s is not a time, such as 1m30s", value)
		}
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("--eviction-soft-grace-period: %w", err)
	}
	for _, threshold := range r.Soft {
		if _, ok := r.SoftGrace[threshold.Signal]; !ok {
			return r, fmt.Errorf("--eviction-soft-grace-period: the soft threshold of %s needs a grace period", threshold.Signal)
		}
	}
	err = each(t.Reclaim, func(s Signal, value string) error {
		threshold, err := parseLimit(value)
		threshold.Signal = s
		r.Reclaim = append(r.Reclaim, threshold)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("--eviction-minimum-reclaim: %w", err)
	}
	return r, nil
}

// each reads a list of SIGNAL=VALUE.
func each(text string, take func(s Signal, value string) error) error {
	if text == "" {
		return nil
	}
	seen := map[Signal]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		signal := Signal(strings.TrimSpace(name))
		switch {
		case !ok:
			return fmt.Errorf("%q is not of the form SIGNAL=VALUE", part)
		case !slices.Contains(signals, signal):
			return fmt.Errorf("unknown signal %q; the signals are %v", signal, signals)
		case seen[signal]:
			return fmt.Errorf("signal %s is named twice", signal)
		}
		seen[signal] = true
		if err := take(signal, strings.TrimSpace(value)); err != nil {
			return err
		}
	}
	return nil
}
