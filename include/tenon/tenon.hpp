/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_TENON_HPP
#define TENON_TENON_HPP

/*
 * tenon in C++17: objects that end themselves, and exceptions in place of statuses, over the C
 * API of <tenon/tenon.h>. Nothing to link but libtenon.
 *
 *     tenon::domain domain("camera");
 *     auto image = tenon::tensor::of<float>(domain, {480, 640});
 *     image.data<float>()[0] = 1;
 *     tenon::queue frames(domain, "frames");
 *     frames.push(std::move(image));
 *
 * Each object converts to the C API's pointer, so that every C function can be called with it;
 * attributes, write-once arenas, groups and the inspector have no classes of their own.
 * With C++20 tensor::span<T>() gives a std::span. Errors: tenon/error.hpp.
 */
#include <tenon/domain.hpp>
#include <tenon/error.hpp>
#include <tenon/object.hpp>
#include <tenon/pool.hpp>
#include <tenon/process.hpp>
#include <tenon/queue.hpp>
#include <tenon/sync.hpp>
#include <tenon/tenon.h>
#include <tenon/tensor.hpp>

#endif
