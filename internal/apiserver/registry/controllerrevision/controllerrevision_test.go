package controllerrevision

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

func TestValidate(t *testing.T) {
	for data, want := range map[string]string{
		`{"spec":{}}`: "[]", `{}`: "[]",
		"":     "[data: Required value: data is mandatory]",
		`"x"`:  "[data: Required value: data must be a valid JSON object]",
		`[1]`:  "[data: Required value: data must be a valid JSON object]",
		`{"a"`: "[data: Required value: data must be a valid JSON object]",
	} {
		r := &appsv1.ControllerRevision{}
		if data != "" {
			r.Data = runtime.RawExtension{Raw: []byte(data)}
		}
		if got := fmt.Sprint(Validate(r)); got != want {
			t.Errorf("%s: got %s, want %s", data, got, want)
		}
	}
}

func TestDataThatCannotBeRead(t *testing.T) {
	for data, readable := range map[string]bool{
		`{"spec":{}}`: true, `[1]`: true, "": true,
		`{"a":1e400}`: false, `{"a"`: false, "\x00": false, "{}{}": false,
		strings.Repeat("[", 20000) + strings.Repeat("]", 20000): false,
	} {
		r := &appsv1.ControllerRevision{}
		if data != "" {
			r.Data.Raw = []byte(data)
		}
		if err := unreadable(r); (err == nil) != readable {
			t.Errorf("%.20q: %v", data, err)
		}
	}
}

func TestController(t *testing.T) {
	r := &appsv1.ControllerRevision{}
	if got := controller(r); got != "<none>" {
		t.Errorf("nobody is %s", got)
	}
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "a", Controller: ptr.To(true)}}
	if got := controller(r); got != "daemonset.apps/a" {
		t.Errorf("the owner is %s, want daemonset.apps/a", got)
	}
}

// A patch of the metadata writes the data again with its keys in order: that is no change of it.
func TestDataInAnotherOrderIsTheSame(t *testing.T) {
	of := func(data string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(data)}}
	}
	for other, want := range map[string]bool{
		`{"a":{"c":9007199254740993,"b":"x"}}`: true, `{"a":{"b":"x", "c":9007199254740993}}`: true,
		`{"a":{"b":"x","c":9007199254740992}}`: false, `{"a":{"b":"y","c":9007199254740993}}`: false, ``: false,
	} {
		if got := holdSame(of(other), of(`{"a":{"b":"x","c":9007199254740993}}`)); got != want {
			t.Errorf("%s: %t, want %t", other, got, want)
		}
	}
}
