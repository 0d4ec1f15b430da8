package hostile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const (
	jsonType  = "application/json"
	yamlType  = "application/yaml"
	protoType = "application/vnd.kubernetes.protobuf"
	tableType = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// wrong says what is wrong with an answer as such, whatever was asked.
func (r reply) wrong() error {
	switch {
	case len(r.panicked) > 0:
		return fmt.Errorf("something panicked: %s", strings.Join(r.panicked, "; "))
	case r.err != nil:
		return fmt.Errorf("no whole answer: %w", r.err)
	case r.code >= http.StatusInternalServerError:
		return fmt.Errorf("an internal error: %d %s", r.code, r.body)
	case r.code < http.StatusOK || r.code >= http.StatusMultipleChoices && r.code < http.StatusBadRequest:
		return fmt.Errorf("a strange code: %d %s", r.code, r.body)
	}
	if warnings := r.header.Values("Warning"); len(warnings) > 0 {
		if _, errs := utilnet.ParseWarningHeaders(warnings); len(errs) > 0 {
			return fmt.Errorf("malformed warnings %q: %w", warnings, errors.Join(errs...))
		}
	}
	if r.code >= http.StatusBadRequest {
		_, err := r.status()
		return err
	}
	return nil
}

// status reads a refusal.
func (r reply) status() (*metav1.Status, error) {
	obj, err := r.object()
	if err != nil {
		return nil, fmt.Errorf("refused with %d, but not with a Status: %w: %s", r.code, err, short(r.body))
	}
	s, ok := obj.(*metav1.Status)
	if !ok || s.Status != metav1.StatusFailure || int(s.Code) != r.code || s.Message == "" {
		return nil, fmt.Errorf("refused with %d, but the Status does not say so: %s", r.code, short(r.body))
	}
	return s, nil
}

// object reads the answer in the format that it says it has; no field may be in
// it that its kind does not have.
func (r reply) object() (runtime.Object, error) {
	switch kind := r.header.Get("Content-Type"); {
	case strings.HasPrefix(kind, protoType):
		obj, _, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(r.body, nil, nil)
		return obj, err
	case strings.HasPrefix(kind, jsonType):
		return decodeStrict(r.body)
	case strings.HasPrefix(kind, yamlType):
		raw, err := yaml.YAMLToJSON(r.body)
		if err != nil {
			return nil, err
		}
		return decodeStrict(raw)
	default:
		return nil, fmt.Errorf("the answer is %q", kind)
	}
}

func decodeStrict(raw []byte) (runtime.Object, error) {
	var name metav1.TypeMeta
	if err := json.Unmarshal(raw, &name); err != nil {
		return nil, err
	}
	gvk := schema.FromAPIVersionAndKind(name.APIVersion, name.Kind)
	var obj runtime.Object
	switch gvk.GroupKind() {
	case schema.GroupKind{Group: metav1.GroupName, Kind: "Table"}:
		obj = &metav1.Table{}
	case schema.GroupKind{Group: metav1.GroupName, Kind: "PartialObjectMetadata"}:
		obj = &metav1.PartialObjectMetadata{}
	case schema.GroupKind{Group: metav1.GroupName, Kind: "PartialObjectMetadataList"}:
		obj = &metav1.PartialObjectMetadataList{}
	default:
		var err error
		if obj, err = scheme.Scheme.New(gvk); err != nil {
			return nil, err
		}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return obj, d.Decode(obj)
}

// table checks that a table has as many cells as columns, in each of its rows.
func (r reply) table(rows int) error {
	obj, err := r.object()
	if err != nil {
		return err
	}
	t, ok := obj.(*metav1.Table)
	if !ok || len(t.Rows) != rows {
		return fmt.Errorf("want a table with %d rows: %s", rows, short(r.body))
	}
	for _, row := range t.Rows {
		if len(row.Cells) != len(t.ColumnDefinitions) {
			return fmt.Errorf("%d cells in %d columns: %s", len(row.Cells), len(t.ColumnDefinitions), short(r.body))
		}
	}
	return nil
}
