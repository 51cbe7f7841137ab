/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_TENSOR_HPP
#define TENON_TENSOR_HPP

#include <complex>
#include <cstdint>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

#include <tenon/error.hpp>
#include <tenon/handle.h>
#include <tenon/share.h>
#include <tenon/tensor.h>

namespace tenon
{

/** One number for each axis. */
using sizes = std::vector<int64_t>;

/** dtype_of<float> is TN_FLOAT32, and so on; a type without a number does not compile. */
template <class T> struct dtype_trait;
template <class T> inline constexpr tn_dtype dtype_of = dtype_trait<std::remove_cv_t<T>>::value;
template <tn_dtype Value> using dtype_constant = std::integral_constant<tn_dtype, Value>;
template <> struct dtype_trait<int8_t> : dtype_constant<TN_INT8> {
};
template <> struct dtype_trait<int16_t> : dtype_constant<TN_INT16> {
};
template <> struct dtype_trait<int32_t> : dtype_constant<TN_INT32> {
};
template <> struct dtype_trait<int64_t> : dtype_constant<TN_INT64> {
};
template <> struct dtype_trait<uint8_t> : dtype_constant<TN_UINT8> {
};
template <> struct dtype_trait<uint16_t> : dtype_constant<TN_UINT16> {
};
template <> struct dtype_trait<uint32_t> : dtype_constant<TN_UINT32> {
};
template <> struct dtype_trait<uint64_t> : dtype_constant<TN_UINT64> {
};
template <> struct dtype_trait<float> : dtype_constant<TN_FLOAT32> {
};
template <> struct dtype_trait<double> : dtype_constant<TN_FLOAT64> {
};
template <> struct dtype_trait<std::complex<float>> : dtype_constant<TN_COMPLEX64> {
};
template <> struct dtype_trait<std::complex<double>> : dtype_constant<TN_COMPLEX128> {
};
template <> struct dtype_trait<bool> : dtype_constant<TN_BOOL> {
};

/**
 * A tensor. A copy of the object is one more reference to the same elements, not a copy of
 * them; clone() copies elements. An empty object has no tensor. Converts to `tn_tensor *`.
 */
class tensor
{
  public:
    tensor() noexcept = default;

    /** A tensor in shared memory: tn_tensor_create(). */
    tensor(tn_domain *domain, tn_dtype dtype, const sizes &shape,
           tn_tensor_options options = {})
    {
        options.struct_size = sizeof options;
        check(tn_tensor_create(domain, dtype, axes(shape), shape.data(), &options, &tensor_));
    }

    /** The same with elements of type T. */
    template <class T>
    static tensor of(tn_domain *domain, const sizes &shape, tn_tensor_options options = {})
    {
        return tensor(domain, dtype_of<T>, shape, options);
    }

    /** A zeroed tensor in private memory, for share(). */
    static tensor in_private_memory(tn_dtype dtype, const sizes &shape)
    {
        tensor made;
        check(tn_tensor_create_private(dtype, axes(shape), shape.data(), &made.tensor_));
        return made;
    }

    /** Take over one reference of a tensor of the C API. */
    explicit tensor(tn_tensor *taken) noexcept : tensor_(taken) {}

    tensor(const tensor &other) noexcept
        : tensor_(other.tensor_ != nullptr ? tn_tensor_ref(other.tensor_) : nullptr)
    {
    }
    tensor(tensor &&other) noexcept : tensor_(std::exchange(other.tensor_, nullptr)) {}
    tensor &operator=(tensor other) noexcept
    {
        std::swap(tensor_, other.tensor_);
        return *this;
    }
    ~tensor() { tn_tensor_unref(tensor_); }

    operator tn_tensor *() const &noexcept { return tensor_; }
    operator tn_tensor *() const && = delete; /* the tensor would end before it is used */

    /** Give the reference to the caller, and be empty. */
    tn_tensor *release() noexcept { return std::exchange(tensor_, nullptr); }

    tn_dtype dtype() const { return tn_tensor_dtype(get()); }
    int32_t ndim() const { return tn_tensor_ndim(get()); }
    /** Number of elements. */
    int64_t count() const { return tn_tensor_count(get()); }
    /** The device that has its memory, as this process numbers devices. */
    tn_device device() const { return tn_tensor_device(get()); }
    sizes shape() const
    {
        const int64_t *first = tn_tensor_shape(get());
        return sizes(first, first + ndim());
    }

    tn_tensor_info info() const
    {
        tn_tensor_info info = {};
        info.struct_size = sizeof info;
        check(tn_tensor_get_info(tensor_, &info));
        return info;
    }

    /**
     * The first element; valid while the tensor lives and is not shared anew. Of a tensor on a
     * device it is an address that only the device can follow.
     */
    void *data() const { return tn_tensor_data(get()); }

    /** The same as T, which must be the type of the elements. */
    template <class T> T *data() const
    {
        if (dtype() != dtype_of<T>)
            throw error(TN_ERR_INVALID, "the elements are " + name_of(dtype()) + ", not " +
                                            name_of(dtype_of<T>));
        return static_cast<T *>(data());
    }

#if __cplusplus >= 202002L
    /** All elements, which must be on the CPU, side by side in row-major order. */
    template <class T> std::span<T> span() const
    {
        if (device().type != TN_DEVICE_CPU)
            throw error(TN_ERR_INVALID, "the tensor is on a device: copy it by to() first");
        if (!info().is_contiguous)
            throw error(TN_ERR_INVALID, "the tensor is not contiguous: clone() it first");
        return std::span<T>(data<T>(), static_cast<size_t>(count()));
    }
#endif

    /** Move a private storage into shared memory: pointers taken before are invalid then. */
    void share(tn_domain *domain, tn_tensor_options options = {})
    {
        options.struct_size = sizeof options;
        check(tn_tensor_share(domain, tensor_, &options));
    }

    /** A tensor in shared memory with a copy of the elements. */
    tensor clone(tn_domain *domain, tn_tensor_options options = {}) const
    {
        options.struct_size = sizeof options;
        tensor made;
        check(tn_tensor_clone(domain, tensor_, &options, &made.tensor_));
        return made;
    }

    /** A tensor on another device with the elements of this one: tn_tensor_to(). */
    tensor to(tn_domain *domain, tn_device device, void *stream = nullptr) const
    {
        tensor made;
        check(tn_tensor_to(domain, tensor_, device, stream, &made.tensor_));
        return made;
    }

    /** Copy the elements of `source`, of the same type and shape, into this tensor. */
    void copy_from(const tensor &source) { check(tn_tensor_copy(tensor_, source)); }

    /** A view of the same storage; an empty `strides` means row-major. */
    tensor view(tn_dtype dtype, const sizes &shape, const std::vector<int64_t> &strides,
                uint64_t byte_offset) const
    {
        if (!strides.empty() && strides.size() != shape.size())
            throw error(TN_ERR_INVALID, "the shape has " + std::to_string(shape.size()) +
                                            " axes, and there are " +
                                            std::to_string(strides.size()) + " strides");
        tensor made;
        check(tn_tensor_view(tensor_, dtype, axes(shape), shape.data(),
                             strides.empty() ? nullptr : strides.data(), byte_offset,
                             &made.tensor_));
        return made;
    }

    /** Elements start, start + step, ... before stop along one axis, as a view. */
    tensor slice(int32_t axis, int64_t start, int64_t stop, int64_t step = 1) const
    {
        tensor made;
        check(tn_tensor_slice(tensor_, axis, start, stop, step, &made.tensor_));
        return made;
    }

    /** The axes in reverse order, or in the order of `order`, as a view. */
    tensor transpose(const std::vector<int32_t> &order = {}) const
    {
        if (!order.empty() && order.size() != static_cast<size_t>(ndim()))
            throw error(TN_ERR_INVALID, "the tensor has " + std::to_string(ndim()) +
                                            " axes, and the order has " +
                                            std::to_string(order.size()));
        tensor made;
        check(tn_tensor_transpose(tensor_, order.empty() ? nullptr : order.data(),
                                  &made.tensor_));
        return made;
    }

    /** The same elements in another shape, as a view; one size may be -1. */
    tensor reshape(const sizes &shape) const
    {
        tensor made;
        check(tn_tensor_reshape(tensor_, axes(shape), shape.data(), &made.tensor_));
        return made;
    }

    /** Bytes that another member of the domain turns into a tensor: tn_handle_export(). */
    std::vector<unsigned char> to_handle(tn_handle_options options = {}) const
    {
        options.struct_size = sizeof options;
        std::vector<unsigned char> bytes(TN_HANDLE_MAX_BYTES);
        size_t used = 0;
        check(tn_handle_export(tensor_, &options, bytes.data(), bytes.size(), &used));
        bytes.resize(used);
        return bytes;
    }

    /** The tensor of a handle, whose uses are one fewer then. */
    static tensor from_handle(tn_domain *domain, const std::vector<unsigned char> &bytes)
    {
        tensor made;
        check(tn_handle_import(domain, bytes.data(), bytes.size(), &made.tensor_));
        return made;
    }

  private:
    static int32_t axes(const sizes &shape)
    {
        /* One more than the library takes, so that it says what is wrong. */
        return static_cast<int32_t>(shape.size() <= TN_MAX_NDIM ? shape.size()
                                                                : TN_MAX_NDIM + 1);
    }

    static std::string name_of(tn_dtype dtype)
    {
        char name[32] = "";
        return tn_dtype_name(dtype, name, sizeof name) == 0 ? name : "of an unknown type";
    }

    tn_tensor *get() const
    {
        if (tensor_ == nullptr)
            throw error(TN_ERR_INVALID, "the tenon::tensor is empty");
        return tensor_;
    }

    tn_tensor *tensor_ = nullptr;
};

} // namespace tenon

#endif
