package controlplane

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// accessInterval is the time between two questions whether the API server has
// learnt of a Role: there is no event to wait for.
const accessInterval = 20 * time.Millisecond

// WaitForAccess waits until the API server lets a ServiceAccount do something, for
// example list endpointslices of the group discovery.k8s.io in a namespace. The API
// server learns of Roles and bindings by watching itself, so in the first moments
// after they were created it still refuses.
func WaitForAccess(ctx context.Context, client kubernetes.Interface, namespace, serviceAccount string, access authorizationv1.ResourceAttributes) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + namespace + ":" + serviceAccount,
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: &access,
	}}
	err := wait.PollUntilContextCancel(ctx, accessInterval, true, func(ctx context.Context) (bool, error) {
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return answer.Status.Allowed, nil
	})
	if err != nil {
		return fmt.Errorf("wait until ServiceAccount %s/%s may %s %s: %w", namespace, serviceAccount, access.Verb, access.Resource, err)
	}
	return nil
}
