package daemonset

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
)

// controllerKind is how this controller's objects refer to a DaemonSet.
var controllerKind = belongings.Kind

func ownerOf(obj metav1.Object) types.UID { return belongings.OwnerOf(obj) }

func concerns(obj metav1.Object) bool { return belongings.Concerns(obj) || fetchpod.Is(obj) }

// labelPatch sets the label that says which revision an object belongs to.
func labelPatch(hash string) []byte {
	return mustJSON(map[string]any{"metadata": map[string]any{
		"labels": map[string]string{appsv1.ControllerRevisionHashLabelKey: hash},
	}})
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("daemonset: a plain map does not marshal: " + err.Error())
	}
	return b
}
