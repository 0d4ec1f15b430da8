package resource

import (
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

// An error may repeat a list of 3 MB. Of errors with more text than longText, in bytes, only the first fewErrors are
// told, because the library copies all that it has for each that it adds.
const (
	longText  = 1 << 20
	fewErrors = 10
)

// few cuts a list of errors that is too long to be told.
func few(errs field.ErrorList) field.ErrorList {
	most, text := min(len(errs), enough.Told), 0
	for i := 0; i < most; i++ {
		errs[i] = written(errs[i])
		if text += len(errs[i].Error()); text > longText && i+1 >= fewErrors {
			most = i + 1
		}
	}
	if most == len(errs) {
		return errs
	}
	more := field.Invalid(field.NewPath("object"), len(errs), "has so many errors; those above are the first")
	return append(errs[:most:most], more)
}

// written has the value of an error as JSON. The library tells it as such, and makes it for each of the five texts that
// it asks of an error.
func written(err *field.Error) *field.Error {
	switch reflect.ValueOf(err.BadValue).Kind() {
	case reflect.Map, reflect.Slice, reflect.Struct, reflect.Pointer:
	default:
		return err
	}
	if err.BadValue == (field.OmitValueType{}) {
		return err
	}
	text, failed := json.Marshal(err.BadValue)
	if failed != nil {
		return err // The library tells such a value in another way.
	}
	out := *err
	out.BadValue = json.RawMessage(text)
	return &out
}
