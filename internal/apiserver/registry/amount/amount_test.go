package amount

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestNumbersAndPercentages(t *testing.T) {
	path := field.NewPath("f")
	for text, c := range map[string]struct {
		value        int
		valid, atAll bool // a number or percentage; at most all
	}{
		"0": {0, true, true}, "7": {7, true, true}, "500": {500, true, true}, "-1": {-1, false, true},
		"0%": {0, true, true}, "25%": {25, true, true}, "101%": {101, true, false}, "x": {0, false, true}, "-5%": {0, false, true}, "1.5%": {0, false, true},
	} {
		v := intstr.Parse(text)
		if got := Value(v); got != c.value {
			t.Errorf("%s: value is %d, want %d", text, got, c.value)
		}
		if errs := NumberOrPercent(path, v); (len(errs) == 0) != c.valid {
			t.Errorf("%s: got %v, valid %v", text, errs, c.valid)
		}
		if errs := AtMostAll(path, v); (len(errs) == 0) != c.atAll {
			t.Errorf("%s: got %v, at most all %v", text, errs, c.atAll)
		}
	}
}
