// Package malformed refuses requests that the library would hand on to the storage unseen, or take for an error of
// its own.
package malformed

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"

	"github.com/everynode/everynode/internal/apiserver/admission/fieldmanagers"
	"github.com/everynode/everynode/internal/apiserver/scheme"
)

// Refuse puts a check in front of the API that refuses what its library
// hands on to the storage unseen, and then takes for an error of its own.
func Refuse(c *genericapiserver.Config, types *scheme.Set) {
	chain := c.BuildHandlerChainFunc
	c.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return chain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info, ok := request.RequestInfoFrom(r.Context())
			if ok && info.IsResourceRequest {
				if err := nonsense(info, r); err != nil {
					responsewriters.ErrorNegotiated(err, types.Codecs,
						schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
					return
				}
			}
			api.ServeHTTP(w, r)
		}), c)
	}
}

// nonsense says what is wrong with a request for a resource.
func nonsense(info *request.RequestInfo, r *http.Request) error {
	for _, p := range []struct{ what, value string }{{"Namespace", info.Namespace}, {"Name", info.Name}} {
		if problems := content.IsPathSegmentName(p.value); len(problems) > 0 {
			return apierrors.NewBadRequest(fmt.Sprintf("%s parameter invalid: %q: %s", p.what, p.value,
				strings.Join(problems, ";")))
		}
	}
	shortenManager(r)
	if info.Verb == "patch" {
		return checkPatch(r)
	}
	if info.Verb != "get" && info.Verb != "watch" {
		return nil // whoever lists, the library tells
	}
	version := r.URL.Query().Get("resourceVersion")
	if _, err := (storage.APIObjectVersioner{}).ParseResourceVersion(version); err != nil {
		return apierrors.NewBadRequest(field.Invalid(field.NewPath("resourceVersion"), version,
			"is not a number").Error())
	}
	return nil
}

// shortenManager has a name of a field manager that nobody may have refused in few words.
func shortenManager(r *http.Request) {
	const parameter = "fieldManager"
	if fieldmanagers.Shown(r.URL.RawQuery) == r.URL.RawQuery {
		return // All of it is short, as nearly always.
	}
	query := r.URL.Query()
	if name := query.Get(parameter); fieldmanagers.Shown(name) != name {
		query.Set(parameter, fieldmanagers.Shown(name))
		r.URL.RawQuery = query.Encode()
	}
}
