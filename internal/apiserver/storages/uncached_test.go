package storages

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// TestNodeStartupsAreReadFromTheDatabase: each node that is created waits for them as they are now, which a watch cache
// of a kind that hardly changes knows a tenth of a second later.
func TestNodeStartupsAreReadFromTheDatabase(t *testing.T) {
	database := struct{ storage.Interface }{}
	o := &Getter{Config: Config{Open: func(*storagebackend.ConfigForResource, func() runtime.Object,
		func() runtime.Object, string) (storage.Interface, error) {
		return &database, nil
	}}}
	open := o.decorator(schema.GroupResource{Group: "everynode.io", Resource: "nodestartups"}, nil)
	got, _, err := open(&storagebackend.ConfigForResource{}, "", nil, nil, nil, nil, nil, nil)
	if err != nil || got != storage.Interface(&database) {
		t.Errorf("they are read through %T, %v, want the database's own storage", got, err)
	}
}
