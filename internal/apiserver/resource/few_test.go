package resource

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

// A client is told of a hundred errors, of ten where they are long, and then how many there are.
func TestFewErrorsAreTold(t *testing.T) {
	long := strings.Repeat("x", longText)
	for _, c := range []struct{ short, long, told int }{
		{0, 0, 0}, {100, 0, 100}, {101, 0, 100}, {5000, 0, 100}, {0, 10, 10}, {0, 11, 10}, {50, 1, 51}, {50, 2, 51}, {3, 50, 10},
	} {
		var errs field.ErrorList
		for i := range c.short {
			errs = append(errs, field.Invalid(nil, i, "short"))
		}
		for range c.long {
			errs = append(errs, field.Invalid(nil, "long", long))
		}
		got := few(errs)
		last := ""
		if len(got) > c.told {
			last = got[len(got)-1].Error()
			got = got[:len(got)-1]
		}
		want := ""
		if c.told < c.short+c.long {
			want = fmt.Sprintf(`object: Invalid value: %d: has so many errors; those above are the first`, c.short+c.long)
		}
		if len(got) != c.told || last != want {
			t.Errorf("of %d short errors and %d long ones %d are told, and %q; want %d and %q", c.short, c.long, len(got), last, c.told, want)
		}
		for i, err := range got {
			if err != errs[i] {
				t.Fatalf("error %d is another", i)
			}
		}
	}
	if enough.Errors < enough.Told {
		t.Error("checks end before they have what is told")
	}
}

// counted is a value that knows how often it was made JSON.
type counted struct{ times *int }

func (c counted) MarshalJSON() ([]byte, error) {
	*c.times++
	return []byte(`{"a": "<b>"}`), nil
}

// The value of an error is made JSON once, and its text is the library's to the letter.
func TestValuesAreWrittenOnce(t *testing.T) {
	path, times := field.NewPath("spec"), 0
	one := few(field.ErrorList{field.Invalid(path, counted{&times}, "wrong")})
	_, _ = one[0].Error(), one[0].ErrorBody()
	if times != 1 {
		t.Errorf("made JSON %d times", times)
	}
	number := int32(3)
	for _, value := range []any{
		counted{new(int)}, nil, "a \"b\" <c>", 3, int64(3), &number, (*int32)(nil), true, []string{"<a>", "&"}, []string(nil), []byte("x"),
		map[string]string{"b": "1", "a": "\u2028"}, corev1.ResourceList{"cpu": resource.MustParse("1Ki")}, &corev1.PodSpec{},
		metav1.Time{}, struct{ F func() }{}, struct{ C chan int }{}, json.RawMessage(`{`), field.OmitValueType{}, []any{func() {}},
	} {
		for _, err := range []*field.Error{
			field.Invalid(path, value, "wrong"), field.NotSupported(path, value, []string{"a"}), field.Duplicate(path, value),
			field.NotFound(path, value), field.TypeInvalid(path, value, "wrong"), field.TooLong(path, value, 3), field.Required(path, ""),
		} {
			same := *err
			want := same.Error()
			if got := few(field.ErrorList{err})[0].Error(); got != want && !strings.Contains(want, "0x") {
				t.Errorf("%T: %s, want %s", value, got, want)
			}
		}
	}
}

// Of a long value its beginning is told, and how long it is.
func TestLongValuesAreToldInPart(t *testing.T) {
	path := field.NewPath("spec")
	list := make([]string, longValue/4)
	for i := range list {
		list[i] = "é"
	}
	whole, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", longValue)
	for _, c := range []struct {
		value any
		want  string
	}{
		{text, `"` + text + `"`},
		{text + "é", `"` + text + `... (65538 bytes)"`},
		{text[1:] + "éé", `"` + text[1:] + `... (65539 bytes)"`},
		{list, fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(string(whole[:longValue]), ""), len(whole))},
	} {
		want := "spec: Invalid value: " + c.want + ": wrong"
		if got := few(field.ErrorList{field.Invalid(path, c.value, "wrong")})[0].Error(); got != want {
			t.Errorf("%.20v: told in %d bytes that end with %s, want %d bytes that end with %s", c.value, len(got),
				got[len(got)-60:], len(want), want[len(want)-60:])
		}
	}
}
