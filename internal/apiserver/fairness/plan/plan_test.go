package plan

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func object(mark string, generation int64) *metav1.ObjectMeta {
	m := &metav1.ObjectMeta{Generation: generation}
	if mark != "" {
		m.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: mark}
	}
	return m
}

func TestWanted(t *testing.T) {
	for name, c := range map[string]struct {
		current         metav1.Object
		mandatory, same bool
		want            Step
	}{
		"missing":                                    {nil, false, false, Create},
		"as it should be":                            {object("true", 1), false, true, Leave},
		"of an older version":                        {object("true", 1), false, false, Update},
		"changed by the user, who left the mark":     {object("true", 2), false, false, Update},
		"the user's":                                 {object("false", 1), false, false, Leave},
		"the user's by chance the same":              {object("false", 1), false, true, Leave},
		"without a mark, never changed":              {object("", 1), false, false, Update},
		"without a mark, never changed, the same":    {object("", 1), false, true, Update},
		"without a mark, changed by the user":        {object("", 2), false, false, Release},
		"mandatory, changed":                         {object("true", 2), true, false, Update},
		"mandatory, said to be the user's":           {object("false", 2), true, false, Update},
		"mandatory, said to be the user's, the same": {object("false", 1), true, true, Update},
		"mandatory, as it should be":                 {object("true", 1), true, true, Leave},
	} {
		if got := Wanted(c.current, c.mandatory, c.same); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestUnwanted(t *testing.T) {
	for mark, want := range map[string]Step{"true": Delete, "false": Leave, "": Leave} {
		if got := Unwanted(object(mark, 1)); got != want {
			t.Errorf("marked %q: %s, want %s", mark, got, want)
		}
	}
}
