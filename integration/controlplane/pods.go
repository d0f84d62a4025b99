package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// requestLimit bounds one call of the API, tries after conflicts included.
const requestLimit = 30 * time.Second

// CreateNode makes a node that is ready to have pods. The controller that writes
// slices leaves out pods whose node it does not know; it takes the zone of an
// endpoint from the node's label topology.kubernetes.io/zone.
func CreateNode(ctx context.Context, client kubernetes.Interface, name string, labels map[string]string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	node, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create node %s: %w", name, err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("set the status of node %s: %w", name, err)
	}
	return node, nil
}

// RunPod makes a pod as if it had been scheduled to the node in its spec, which
// must be set, and started there: it is running and ready and has these addresses,
// at most one of each family. A pod without containers is given one.
func RunPod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, addresses ...string) (*corev1.Pod, error) {
	if pod.Spec.NodeName == "" {
		return nil, fmt.Errorf("run pod %s/%s: its spec names no node", pod.Namespace, pod.Name)
	}
	pod = pod.DeepCopy()
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "image.test/main"}} // never pulled
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	created, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return SetPodRunning(ctx, client, created.Namespace, created.Name, addresses...)
}

// BindPod does the scheduler's work for a pod that a controller made.
func BindPod(ctx context.Context, client kubernetes.Interface, namespace, name, node string) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := client.CoreV1().Pods(namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bind pod %s/%s to node %s: %w", namespace, name, node, err)
	}
	return nil
}

// SetPodRunning does the kubelet's work for a pod that is bound to a node: it is
// running and ready and has these addresses, at most one of each family, instead
// of those that it had.
func SetPodRunning(ctx context.Context, client kubernetes.Interface, namespace, name string, addresses ...string) (*corev1.Pod, error) {
	return UpdatePodStatus(ctx, client, namespace, name, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodRunning
		status.PodIP, status.PodIPs = "", nil
		for _, address := range addresses {
			status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: address})
		}
		if len(addresses) > 0 {
			status.PodIP = addresses[0]
		}
		setReady(status, true)
	})
}

// SetPodReady does the kubelet's work when a readiness probe begins to succeed or
// to fail.
func SetPodReady(ctx context.Context, client kubernetes.Interface, namespace, name string, ready bool) (*corev1.Pod, error) {
	return UpdatePodStatus(ctx, client, namespace, name, func(status *corev1.PodStatus) {
		setReady(status, ready)
	})
}

// UpdatePodStatus changes the status of a pod. It calls change again, on the newest
// status, when somebody else has changed the pod in between.
func UpdatePodStatus(ctx context.Context, client kubernetes.Interface, namespace, name string, change func(*corev1.PodStatus)) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	var updated *corev1.Pod
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&pod.Status)
		updated, err = client.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("set the status of pod %s/%s: %w", namespace, name, err)
	}
	return updated, nil
}

// RemovePod makes a pod vanish at once, as the kubelet does when its containers
// have ended. An ordinary Delete only begins that: the pod is terminating until
// RemovePod, since no kubelet is there.
func RemovePod(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	err := client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if err != nil {
		return fmt.Errorf("remove pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// setReady sets the conditions that a readiness probe decides.
func setReady(status *corev1.PodStatus, ready bool) {
	value := corev1.ConditionFalse
	if ready {
		value = corev1.ConditionTrue
	}
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = slices.DeleteFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type:               kind,
			Status:             value,
			LastTransitionTime: metav1.Now(),
		})
	}
}
